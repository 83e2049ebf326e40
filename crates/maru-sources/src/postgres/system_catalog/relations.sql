-- Everything that can stand in FROM. Relations of an extension are its own
-- business: some show what others ask the server.
SELECT c.oid, n.nspname::text AS schema, c.relname::text AS name,
       n.nspname IN ('pg_catalog', 'pg_toast') AS system,
       c.relkind IN ('r', 'v', 'm', 'f', 'p')
         AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
         AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
                         WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
                           AND d.objid = c.oid AND d.deptype = 'e') AS own,
       c.relkind IN ('r', 'v', 'm', 'f', 'p')
         AND n.nspname <> 'information_schema'
         AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
         AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT') AS readable,
       pg_catalog.pg_table_is_visible(c.oid) AS visible
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'f', 'p', 'S', 't')
