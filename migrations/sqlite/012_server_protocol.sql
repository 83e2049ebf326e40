-- The protocol version that a server is held to, and servers that were removed and
-- stay so although a file lists them.
ALTER TABLE mcp_servers ADD COLUMN protocol_version TEXT;
CREATE TABLE mcp_server_removed (
    name       TEXT    PRIMARY KEY,
    removed_at INTEGER NOT NULL
) STRICT;
