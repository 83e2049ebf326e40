SELECT f.attname::text AS from, k.confrelid AS to, t.attname::text AS column
FROM pg_catalog.pg_constraint k
CROSS JOIN LATERAL unnest(k.conkey, k.confkey) AS pair(from_number, to_number)
JOIN pg_catalog.pg_attribute f ON f.attrelid = k.conrelid AND f.attnum = pair.from_number
JOIN pg_catalog.pg_attribute t ON t.attrelid = k.confrelid AND t.attnum = pair.to_number
WHERE k.conrelid = $1 AND k.contype = 'f'
ORDER BY k.conname, pair.from_number
