-- A file has one hub, so nobody waits for changes.
SELECT 1;
