SELECT a.attname::text AS name, pg_catalog.pg_get_indexdef(i.indexrelid) AS definition
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum > 0
WHERE i.indrelid = $1 AND i.indisvalid
  AND (a.attnum = ANY (i.indkey) OR EXISTS (
    SELECT FROM pg_catalog.pg_depend d
    WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = i.indexrelid
      AND d.refobjid = i.indrelid AND d.refobjsubid = a.attnum))
  AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_attribute h
    WHERE h.attrelid = i.indrelid AND h.attnum > 0 AND NOT h.attisdropped
      AND NOT pg_catalog.has_column_privilege(h.attrelid, h.attnum, 'SELECT'))
ORDER BY i.indisprimary DESC, definition
