-- A file has one hub, which counts the calls of a minute in memory.
SELECT 1;
