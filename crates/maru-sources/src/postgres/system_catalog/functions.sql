-- pure: every built-in of this name calculates from its arguments alone.
-- foreign: there is one that the server did not come with, and that is neither
-- the constructor of an extension's type, nor a harmless namesake of a
-- built-in, nor one of pgvector's, which calculate with vectors.
-- single: one of this name can be called with one value.
SELECT f.proname::text AS name,
       bool_and(f.provolatile = 'i' OR NOT f.builtin) AS pure,
       bool_or(f.builtin) AS builtin,
       bool_or(NOT f.builtin AND NOT f.constructor AND NOT f.namesake AND NOT f.vector) AS foreign,
       bool_or(f.pronargs >= 1 AND f.pronargs - f.pronargdefaults <= 1) AS single
FROM (
  SELECT p.proname, p.provolatile, p.pronargs, p.pronargdefaults,
         p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace AND p.oid < 16384 AS builtin,
         e.refobjid IS NOT NULL AND p.provolatile <> 'v' AND EXISTS (
           SELECT FROM pg_catalog.pg_type t
           JOIN pg_catalog.pg_depend te ON te.objid = t.oid AND te.deptype = 'e'
            AND te.classid = 'pg_catalog.pg_type'::pg_catalog.regclass
            AND te.refobjid = e.refobjid
           WHERE t.typname = p.proname) AS constructor,
         p.provolatile = 'i' AND EXISTS (
           SELECT FROM pg_catalog.pg_extension x
           WHERE x.oid = e.refobjid AND x.extname = 'vector') AS vector,
         EXISTS (SELECT FROM pg_catalog.pg_proc b
                 WHERE b.proname = p.proname AND b.oid < 16384
                   AND b.pronamespace = 'pg_catalog'::pg_catalog.regnamespace)
           AND (e.refobjid IS NOT NULL OR p.provolatile = 'i' AND NOT p.prosecdef) AS namesake
  FROM pg_catalog.pg_proc p
  LEFT JOIN pg_catalog.pg_depend e ON e.objid = p.oid AND e.deptype = 'e'
   AND e.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
  WHERE p.prorettype NOT IN ('pg_catalog.trigger'::pg_catalog.regtype,
                             'pg_catalog.event_trigger'::pg_catalog.regtype)
) f
GROUP BY f.proname
