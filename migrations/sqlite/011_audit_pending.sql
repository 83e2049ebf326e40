-- Changes that were begun; each becomes a record of the audit when it has ended.
CREATE TABLE audit_pending (
    request   TEXT    PRIMARY KEY,
    at        INTEGER NOT NULL,
    principal TEXT    NOT NULL,
    origin    TEXT    NOT NULL,
    action    TEXT    NOT NULL,
    target    TEXT    NOT NULL,
    arguments TEXT    NOT NULL
) STRICT;
