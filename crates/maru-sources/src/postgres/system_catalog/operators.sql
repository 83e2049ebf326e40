-- Operators that somebody made, unless they are an extension's, or calculate
-- from their arguments under the name of a built-in one.
SELECT DISTINCT o.oprname::text
FROM pg_catalog.pg_operator o
LEFT JOIN pg_catalog.pg_proc p ON p.oid = o.oprcode
WHERE o.oid >= 16384
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend e
                  WHERE e.objid = o.oid AND e.deptype = 'e'
                    AND e.classid = 'pg_catalog.pg_operator'::pg_catalog.regclass)
  AND (p.prosecdef OR p.provolatile <> 'i'
       OR NOT EXISTS (SELECT FROM pg_catalog.pg_operator b
                      WHERE b.oprname = o.oprname AND b.oid < 16384))
