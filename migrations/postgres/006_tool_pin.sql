-- Definitions of tools that were accepted, and which servers may change theirs.
CREATE TABLE tool_pin (
    server      TEXT      NOT NULL,
    tool        TEXT      NOT NULL,
    digest      BYTEA     NOT NULL,
    definition  TEXT,
    accepted_at TIMESTAMP NOT NULL,
    PRIMARY KEY (server, tool)
);
ALTER TABLE mcp_servers ADD COLUMN trust VARCHAR(10) NOT NULL DEFAULT 'pin';
