-- Databases that were added while the hub runs; the definition is JSON, sealed where
-- secrets are.
CREATE TABLE data_source (
    name       TEXT    PRIMARY KEY,
    definition TEXT    NOT NULL,
    updated_at BIGINT  NOT NULL
);
-- Switches of the hub that are no settings of the file.
CREATE TABLE hub_setting (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
