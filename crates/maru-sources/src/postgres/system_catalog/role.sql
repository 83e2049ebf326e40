-- What the role can do beside reading tables.
SELECT p.power
FROM pg_catalog.pg_roles r,
     LATERAL (VALUES ('is superuser', r.rolsuper), ('may replicate', r.rolreplication),
                     ('passes row security', r.rolbypassrls)) p(power, has)
WHERE r.rolname = CURRENT_USER AND p.has
UNION ALL
SELECT 'is member of ' || g.rolname
FROM pg_catalog.pg_roles g
WHERE g.rolname IN ('pg_read_server_files', 'pg_write_server_files',
                    'pg_execute_server_program', 'pg_signal_backend')
  AND pg_catalog.pg_has_role(CURRENT_USER, g.oid, 'MEMBER')
