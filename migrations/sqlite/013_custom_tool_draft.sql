-- Drafts of custom tools: the whole tool as JSON, beside the published version.
CREATE TABLE h_custom_tool_draft (
    name     TEXT PRIMARY KEY,
    tool     TEXT NOT NULL,
    saved_by TEXT NOT NULL,
    saved_dt TEXT NOT NULL
) WITHOUT ROWID;
-- A custom tool has one switch: is_active.
UPDATE h_custom_tool SET is_active = 'N'
WHERE name IN (SELECT tool FROM tool_off WHERE server = 'maru');
DELETE FROM tool_off
WHERE server = 'maru' AND tool IN (SELECT name FROM h_custom_tool);
