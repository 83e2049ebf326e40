-- What the role can do beside reading tables. Of a superuser nothing more is said: it
-- can do everything.
WITH me AS (SELECT r.* FROM pg_catalog.pg_roles r WHERE r.rolname = CURRENT_USER),
own AS (
  SELECT c.oid, c.relkind, c.relowner
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'v', 'm', 'f', 'p')
    AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
)
SELECT p.power
FROM me, LATERAL (VALUES
  ('is superuser', me.rolsuper),
  ('may replicate', me.rolreplication),
  ('passes row security', me.rolbypassrls),
  ('owns tables', NOT me.rolsuper AND EXISTS (
     SELECT FROM own WHERE pg_catalog.pg_has_role(own.relowner, 'USAGE'))),
  ('may write to tables', NOT me.rolsuper AND EXISTS (
     SELECT FROM own WHERE own.relkind IN ('r', 'v', 'f', 'p')
       AND NOT pg_catalog.pg_has_role(own.relowner, 'USAGE')
       AND pg_catalog.has_table_privilege(own.oid, 'INSERT, UPDATE, DELETE, TRUNCATE'))),
  ('may create tables', NOT me.rolsuper AND EXISTS (
     SELECT FROM pg_catalog.pg_namespace n
     WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
       AND pg_catalog.has_schema_privilege(n.oid, 'CREATE')))
) p(power, has)
WHERE p.has
UNION ALL
SELECT 'is member of ' || g.rolname
FROM pg_catalog.pg_roles g, me
WHERE g.rolname IN ('pg_read_server_files', 'pg_write_server_files', 'pg_write_all_data',
                    'pg_execute_server_program', 'pg_signal_backend')
  AND NOT me.rolsuper AND pg_catalog.pg_has_role(CURRENT_USER, g.oid, 'MEMBER')
