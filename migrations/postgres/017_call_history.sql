-- What is searched of a call: rows without a number are changes or were written earlier.
ALTER TABLE audit ADD COLUMN call_number BIGINT;
ALTER TABLE audit ADD COLUMN server TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN error TEXT;
ALTER TABLE audit ADD COLUMN failed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit ADD COLUMN argument_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit ADD COLUMN result_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit ADD COLUMN server_took BIGINT NOT NULL DEFAULT 0;
CREATE INDEX idx_audit_call ON audit (call_number) WHERE call_number IS NOT NULL;
CREATE INDEX idx_audit_target ON audit (target, id);
CREATE INDEX idx_audit_server ON audit (server, id);
CREATE INDEX idx_audit_principal ON audit (principal, id);
CREATE INDEX idx_audit_failed ON audit (id) WHERE failed = 1;
-- Calls, failures and durations in slots of minutes, by tool, caller and duration: what the
-- usage of weeks is read from.
CREATE TABLE call_usage (
    slot     BIGINT NOT NULL, -- minutes since 1970
    tool     TEXT NOT NULL,
    server   TEXT NOT NULL,
    caller   TEXT NOT NULL,
    bucket   BIGINT NOT NULL, -- four for each doubling of the duration
    calls    BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    micros   BIGINT NOT NULL,
    PRIMARY KEY (slot, tool, server, caller, bucket)
);
