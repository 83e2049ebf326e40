-- How often a minute a user may call tools, and a tool may be called.
CREATE TABLE tool_rate (
    target_type TEXT    NOT NULL CHECK (target_type IN ('USER', 'TOOL')),
    target_id   TEXT    NOT NULL,
    per_minute  BIGINT  NOT NULL CHECK (per_minute >= 0),
    PRIMARY KEY (target_type, target_id)
);
