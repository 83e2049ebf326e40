#!/bin/sh
# Moves servers, tools and limits to another hub, by one file without secrets.
. ../lib.sh
start_hub
maru tools import ../sql-tool/tool.yaml
maru export "$MARU_DATA_DIR/hub.yaml"
first=$MARU_DATA_DIR
MARU_DATA_DIR=$WORK/other
start_hub
maru import "$first/hub.yaml" --dry-run
maru import "$first/hub.yaml"
maru call get_user_daily_limit '{"user_name":"hong"}'
