-- Custom tools. Flags are 'Y' or 'N'; times are UTC text.
CREATE TABLE h_custom_tool (
    id                INTEGER PRIMARY KEY,
    name              TEXT    NOT NULL UNIQUE,
    description_agent TEXT    NOT NULL,
    description_user  TEXT    NOT NULL DEFAULT '',
    tool_type         TEXT    NOT NULL,
    definition        TEXT    NOT NULL,
    is_active         TEXT    NOT NULL DEFAULT 'Y',
    reg_dt            TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
    created_by        TEXT    NOT NULL DEFAULT '',
    source            TEXT,
    result_format     TEXT    NOT NULL DEFAULT 'auto',
    version           INTEGER NOT NULL DEFAULT 1,
    upd_dt            TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
);
CREATE TABLE h_custom_tool_param (
    id            INTEGER PRIMARY KEY,
    tool_id       INTEGER NOT NULL REFERENCES h_custom_tool (id) ON DELETE CASCADE,
    param_name    TEXT    NOT NULL,
    param_type    TEXT    NOT NULL,
    is_required   TEXT    NOT NULL DEFAULT 'Y',
    description   TEXT    NOT NULL DEFAULT '',
    default_value TEXT, -- JSON
    choices       TEXT, -- JSON array
    UNIQUE (tool_id, param_name)
);
-- What was saved, also of tools that are gone: the whole tool as JSON.
CREATE TABLE h_custom_tool_version (
    name     TEXT    NOT NULL,
    version  INTEGER NOT NULL,
    tool     TEXT    NOT NULL,
    saved_by TEXT    NOT NULL,
    saved_dt TEXT    NOT NULL,
    PRIMARY KEY (name, version)
) WITHOUT ROWID;

-- How often a day a user may call tools, and a tool may be called.
CREATE TABLE h_mcp_tool_limit (
    target_type TEXT    NOT NULL CHECK (target_type IN ('USER', 'TOOL')),
    target_id   TEXT    NOT NULL,
    max_count   INTEGER NOT NULL CHECK (max_count >= 0),
    PRIMARY KEY (target_type, target_id)
) WITHOUT ROWID;
-- How often they did; days are UTC, counted from 1970.
CREATE TABLE h_mcp_tool_usage (
    target_type TEXT    NOT NULL,
    target_id   TEXT    NOT NULL,
    day         INTEGER NOT NULL,
    used        INTEGER NOT NULL,
    PRIMARY KEY (target_type, target_id)
) WITHOUT ROWID;
