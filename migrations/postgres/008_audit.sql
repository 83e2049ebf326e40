-- Who did what. Rows are added and, when they are old, removed; none is changed.
CREATE TABLE audit (
    id        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        BIGINT NOT NULL,
    principal TEXT   NOT NULL,
    origin    TEXT   NOT NULL,
    client    TEXT,
    action    TEXT   NOT NULL,
    target    TEXT   NOT NULL,
    arguments TEXT   NOT NULL,
    outcome   TEXT   NOT NULL,
    took      BIGINT NOT NULL,
    request   TEXT   NOT NULL
);
CREATE INDEX idx_audit_at ON audit (at);
CREATE FUNCTION audit_unchanged() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'audit records are not changed'; END $$;
CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit
FOR EACH ROW EXECUTE FUNCTION audit_unchanged();
