-- Models that were added while the hub runs; the definition is JSON, sealed where secrets
-- are.
CREATE TABLE model (
    name       TEXT    PRIMARY KEY,
    definition TEXT    NOT NULL,
    updated_at BIGINT  NOT NULL
);
CREATE TRIGGER notify_change AFTER INSERT OR UPDATE OR DELETE ON model
    FOR EACH STATEMENT EXECUTE FUNCTION maru_notify_change();
