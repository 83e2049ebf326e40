-- What views and row policies read, as far as it goes.
WITH RECURSIVE uses AS (
  SELECT r.ev_class AS who, d.refobjid AS what
  FROM pg_catalog.pg_rewrite r
  JOIN pg_catalog.pg_depend d ON d.objid = r.oid
   AND d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
   AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
  WHERE d.refobjid <> r.ev_class
  UNION
  SELECT p.polrelid, d.refobjid
  FROM pg_catalog.pg_policy p
  JOIN pg_catalog.pg_depend d ON d.objid = p.oid
   AND d.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass
   AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
  WHERE d.refobjid <> p.polrelid
), reads(root, oid) AS (
  SELECT u.who, u.what FROM uses u WHERE u.who = ANY ($1::pg_catalog.oid[])
  UNION
  SELECT r.root, u.what FROM reads r JOIN uses u ON u.who = r.oid
)
SELECT root, oid FROM reads
