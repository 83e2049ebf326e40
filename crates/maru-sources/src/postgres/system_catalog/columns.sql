SELECT DISTINCT a.attname::text
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = ANY ($1::pg_catalog.oid[]) AND a.attnum > 0 AND NOT a.attisdropped
