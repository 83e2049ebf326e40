-- Models that were added while the hub runs; the definition is JSON, sealed where secrets
-- are.
CREATE TABLE model (
    name       TEXT    PRIMARY KEY,
    definition TEXT    NOT NULL,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;
