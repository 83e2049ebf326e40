"""Calls a tool of a hub: client.py ADDRESS."""

import json
import sys
import urllib.request

message = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "get_employee_info", "arguments": {"employee_id": "EMP001"}},
}
request = urllib.request.Request(
    sys.argv[1] + "/sse", json.dumps(message).encode(), {"content-type": "application/json"}
)
result = json.load(urllib.request.urlopen(request))["result"]
print(json.loads(result["content"][0]["text"])["result"]["name"])
