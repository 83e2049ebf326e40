-- The protocol version that a server is held to, and servers that were removed and
-- stay so although a file lists them.
ALTER TABLE mcp_servers ADD COLUMN protocol_version VARCHAR(20);
CREATE TABLE mcp_server_removed (
    name       VARCHAR(100) PRIMARY KEY,
    removed_at TIMESTAMP    NOT NULL
);
