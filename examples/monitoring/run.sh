#!/bin/sh
# What Prometheus reads, and the probes of a load balancer.
. ../lib.sh
start_hub
maru call search_docs '{"query":"연차"}' >/dev/null
curl -s "$HUB/healthz"; echo
curl -s -o /dev/null -w "%{http_code}\n" "$HUB/readyz"
curl -s -H "authorization: Bearer $TOKEN" "$HUB/metrics" | grep "^maru_tool_calls_total"
