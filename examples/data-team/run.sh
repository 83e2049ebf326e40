#!/bin/sh
# What compose.yaml starts, on this machine: PostgreSQL, Chroma, an embedding endpoint (a
# stand-in) and the hub with maru.yaml. Needs PostgreSQL, and `chroma` on the PATH
# (pip install chromadb).
. ../lib.sh
start_postgres
psql --quiet "$POSTGRES_URL" <<'END'
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric);
CREATE TABLE customers (id int PRIMARY KEY, name text);
CREATE TABLE salaries (name text, amount numeric);
INSERT INTO orders VALUES (1, 1, 10.50), (2, 1, 31.50);
INSERT INTO customers VALUES (1, 'Kim');
CREATE ROLE reader LOGIN PASSWORD 'change-me';
GRANT SELECT ON orders, customers, salaries TO reader;
END
export SALES_DATABASE="postgres://reader:change-me@127.0.0.1:$POSTGRES_PORT/postgres"
start_model
export EMBEDDING_URL="$MODEL_URL/embeddings" CHROMA_HOST=127.0.0.1
CHROMA_PORT=$(free_port)
export CHROMA_PORT
TMPDIR=$WORK chroma run --host "$CHROMA_HOST" --port "$CHROMA_PORT" --path "$WORK/chroma" >"$WORK/chroma.log" 2>&1 &
started="$started $!"
until curl -fs -o /dev/null "http://$CHROMA_HOST:$CHROMA_PORT/api/v2/heartbeat"; do
    kill -0 $! || { cat "$WORK/chroma.log" >&2; exit 1; }
    sleep 0.1
done
start_hub --config maru.yaml

maru call query_bga_database '{"source":"sales","generated_sql":"SELECT c.name, sum(o.amount) AS total FROM orders o JOIN customers c ON c.id = o.customer GROUP BY 1"}'
# Only the listed tables, although the role could read more.
maru call query_bga_database '{"source":"sales","generated_sql":"SELECT * FROM salaries"}' || true
printf '%s\n' '"orders.amount: the price of an order in won"' '"customers.name: the name of a customer"' >"$WORK/columns.jsonl"
maru index add --collection column_metadata "$WORK/columns.jsonl"
maru call get_sim_search '{"query_list":["price of an order"],"n_results":1}'
