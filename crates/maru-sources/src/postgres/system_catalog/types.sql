-- Types whose casts run a function that somebody made, and those that turn text
-- into objects of the system.
SELECT t.typname::text
FROM pg_catalog.pg_cast c
JOIN pg_catalog.pg_proc p ON p.oid = c.castfunc AND p.oid >= 16384
JOIN pg_catalog.pg_type t ON t.oid = c.casttarget
 AND (t.oid >= 16384 OR p.prosecdef OR p.provolatile <> 'i')
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_depend e
                  WHERE e.objid = p.oid AND e.deptype = 'e'
                    AND e.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass)
UNION
SELECT t.typname::text
FROM pg_catalog.pg_type t
WHERE t.typname ~ '^_?(reg|pg_|aclitem)' AND t.oid < 16384
  AND t.typname NOT IN ('regconfig', 'regdictionary', '_regconfig', '_regdictionary')
