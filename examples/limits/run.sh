#!/bin/sh
# Calls per minute of a tool, and the audit log.
. ../lib.sh
start_hub
maru limits set tool search_docs --per-minute 1
maru call search_docs '{"query":"연차"}' >/dev/null
maru call search_docs '{"query":"연차"}' || echo "the second call is refused"
maru audit | head -3
