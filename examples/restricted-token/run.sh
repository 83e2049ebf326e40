#!/bin/sh
# A token that sees and calls one tool only.
. ../lib.sh
printf "require_token: true\n" >"$MARU_DATA_DIR/maru.yaml"
start_hub --config "$MARU_DATA_DIR/maru.yaml"
bot=$(maru token create bot --role agent --tool search_docs --expires 30d)
ask() { curl -s "$HUB/sse" -H "content-type: application/json" -H "authorization: Bearer $bot" -d "$1"; echo; }
ask '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search_docs","arguments":{"query":"연차"}}}'
ask '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"get_employee_info","arguments":{"employee_id":"EMP001"}}}'
curl -s -o /dev/null -w "%{http_code}\n" "$HUB/mcp" -d "{}"
