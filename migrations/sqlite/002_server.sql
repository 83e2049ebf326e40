-- MCP servers that the hub knows. The configuration is JSON and may hold secrets.
CREATE TABLE mcp_servers (
    id             VARCHAR(36)  PRIMARY KEY,
    name           VARCHAR(100) NOT NULL,
    description    VARCHAR(500),
    transport_type VARCHAR(20)  NOT NULL,
    config         TEXT         NOT NULL DEFAULT '{}',
    version        VARCHAR(50),
    auto_connect   BOOLEAN      NOT NULL DEFAULT FALSE,
    created_at     TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at     TIMESTAMP    NOT NULL DEFAULT CURRENT_TIMESTAMP,
    enabled        BOOLEAN      NOT NULL DEFAULT TRUE,
    origin         VARCHAR(20)  NOT NULL DEFAULT 'api'
);
CREATE UNIQUE INDEX idx_mcp_servers_name ON mcp_servers (name);

-- Times are milliseconds since 1970; the default, and people, write text.
CREATE TRIGGER mcp_servers_inserted AFTER INSERT ON mcp_servers
WHEN typeof(NEW.created_at) = 'text' OR typeof(NEW.updated_at) = 'text'
BEGIN
    UPDATE mcp_servers SET
        created_at = CASE typeof(created_at) WHEN 'text' THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000) AS INTEGER) ELSE created_at END,
        updated_at = CASE typeof(updated_at) WHEN 'text' THEN CAST(round((julianday(updated_at) - 2440587.5) * 86400000) AS INTEGER) ELSE updated_at END
    WHERE rowid = NEW.rowid;
END;
CREATE TRIGGER mcp_servers_updated AFTER UPDATE OF created_at, updated_at ON mcp_servers
WHEN typeof(NEW.created_at) = 'text' OR typeof(NEW.updated_at) = 'text'
BEGIN
    UPDATE mcp_servers SET
        created_at = CASE typeof(created_at) WHEN 'text' THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000) AS INTEGER) ELSE created_at END,
        updated_at = CASE typeof(updated_at) WHEN 'text' THEN CAST(round((julianday(updated_at) - 2440587.5) * 86400000) AS INTEGER) ELSE updated_at END
    WHERE rowid = NEW.rowid;
END;
