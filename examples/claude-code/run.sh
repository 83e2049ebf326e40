#!/bin/sh
# The API of Claude Code on a local model: the same request that the agent sends. With the
# agent itself: maru connect claude-code --models
. ../lib.sh
start_model
start_hub --config ../local-model/maru.yaml
maru connect claude-code --models | head -6
curl -s "$HUB/v1/messages" -H "content-type: application/json" -H "x-api-key: local" -d @request.json
echo
