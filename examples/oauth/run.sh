#!/bin/sh
# Access tokens of a company's issuer: the scope decides the role, and a request without a token
# learns where to get one. The proxy with TLS is left out.
. ../lib.sh
start_stand_in issuer.py
export ISSUER_KEYS="$STAND_IN_URL/keys"
start_hub --config maru.yaml

# call_with TOKEN: what the hub answers to a call.
call_with() {
    curl -s "$HUB/sse" -H "Authorization: Bearer $1" -H 'Content-Type: application/json' -w '\nHTTP %{http_code}\n' \
        -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search_docs","arguments":{"query":"연차"}}}'
}
echo "agent:" && call_with "$(curl -s "$STAND_IN_URL/token?scope=maru:call")"
echo "reader:" && call_with "$(curl -s "$STAND_IN_URL/token?scope=maru:read")"
echo "nobody:" && curl -s -o /dev/null -D - -X POST "$HUB/mcp" | grep -i '^www-authenticate'
