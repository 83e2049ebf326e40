-- MCP servers that the hub knows. The configuration is JSON and may hold secrets.
-- Times are UTC.
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
