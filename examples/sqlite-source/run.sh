#!/bin/sh
# Read-only SQL on an SQLite file: only the listed table, no writing.
. ../lib.sh
python3 - "$MARU_DATA_DIR/shop.db" <<END
import sqlite3, sys
shop = sqlite3.connect(sys.argv[1])
shop.executescript("CREATE TABLE orders(id, amount); INSERT INTO orders VALUES (1, 10), (2, 32); CREATE TABLE secrets(x)")
shop.commit()
END
SHOP_DATABASE=$MARU_DATA_DIR/shop.db start_hub --config maru.yaml
maru call query_bga_database '{"source":"shop","generated_sql":"SELECT sum(amount) AS total FROM orders"}'
maru call query_bga_database '{"source":"shop","generated_sql":"SELECT * FROM secrets"}' || true
maru call query_bga_database '{"source":"shop","generated_sql":"DELETE FROM orders"}' || true
