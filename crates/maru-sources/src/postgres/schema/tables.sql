SELECT n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
       pg_catalog.obj_description(c.oid, 'pg_class') AS comment, c.reltuples AS rows
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY ($1::pg_catalog.oid[])
ORDER BY n.nspname, c.relname
