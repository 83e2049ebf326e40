-- Who did what. Rows are added and, when they are old, removed; none is changed.
CREATE TABLE audit (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL,
    principal TEXT    NOT NULL,
    origin    TEXT    NOT NULL,
    client    TEXT,
    action    TEXT    NOT NULL,
    target    TEXT    NOT NULL,
    arguments TEXT    NOT NULL,
    outcome   TEXT    NOT NULL,
    took      INTEGER NOT NULL,
    request   TEXT    NOT NULL
) STRICT;
CREATE INDEX idx_audit_at ON audit (at);
CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'audit records are not changed');
END;
