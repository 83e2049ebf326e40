#!/bin/sh
# Puts a stdio server behind the hub. Any MCP server works; this one is another maru.
. ../lib.sh
start_hub
maru servers add second -- "$(command -v maru)" --data-dir "$MARU_DATA_DIR/second" stdio
maru servers list
maru call second__get_employee_info '{"employee_id":"EMP001"}'
