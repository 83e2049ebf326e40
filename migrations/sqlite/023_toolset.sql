-- Named selections of tools, each as JSON.
CREATE TABLE toolset (
    name       TEXT PRIMARY KEY,
    definition TEXT NOT NULL
) WITHOUT ROWID;
-- How a tool is described to clients instead of as its server describes it, as JSON.
CREATE TABLE tool_override (
    server     TEXT NOT NULL,
    tool       TEXT NOT NULL,
    definition TEXT NOT NULL,
    PRIMARY KEY (server, tool)
) WITHOUT ROWID;
-- The toolset that a token is limited to, and whether its clients list or search tools.
ALTER TABLE token ADD COLUMN toolset TEXT;
ALTER TABLE token ADD COLUMN tool_listing TEXT;
