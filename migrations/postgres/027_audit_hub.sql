-- The hub that wrote a record; calls are numbered by each hub.
ALTER TABLE audit ADD COLUMN hub TEXT NOT NULL DEFAULT '';
