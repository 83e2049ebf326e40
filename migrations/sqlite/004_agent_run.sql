-- What happened in runs of the agent that have ended: the whole run as JSON.
CREATE TABLE agent_run (
    id         TEXT    PRIMARY KEY,
    user_name  TEXT    NOT NULL,
    started_at INTEGER NOT NULL, -- milliseconds since 1970
    record     TEXT    NOT NULL
) WITHOUT ROWID;
CREATE INDEX idx_agent_run_started ON agent_run (started_at);
