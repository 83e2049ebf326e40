#!/bin/sh
# Two hubs on one PostgreSQL: a tool that is made at one is called at the other, which goes
# on when the first ends. A real installation has a balancer in front of them
# (packaging/compose).
. ../lib.sh
start_postgres
export STORE_URL="$POSTGRES_URL" SEAL_KEY_FILE="$WORK/seal-key"
(umask 077 && head -c 32 /dev/urandom | base64 >"$SEAL_KEY_FILE")

MARU_HUB_NAME=one MARU_DATA_DIR=$WORK/one
export MARU_HUB_NAME MARU_DATA_DIR
start_hub --config maru.yaml
one=${started##* }
maru tools import ../sql-tool/tool.yaml

MARU_HUB_NAME=two MARU_DATA_DIR=$WORK/two
start_hub --config maru.yaml
maru call get_user_daily_limit '{"user_name":"hong"}'
kill "$one"
wait "$one" || true
echo "hub one has ended"
maru call get_user_daily_limit '{"user_name":"hong"}'
