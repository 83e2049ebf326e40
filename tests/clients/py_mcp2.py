"""Python mcp 2: lists, calls, prints what it saw. Usage as py_mcp1.py; MODE=auto|legacy picks the protocol's era."""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client


async def main(kind, first, *rest):
    target = {
        "http": lambda: first,
        "sse": lambda: sse_client(first),
        "stdio": lambda: StdioServerParameters(command=first, args=list(rest)),
    }[kind]()
    async with Client(target, mode=os.environ.get("MODE", "auto")) as client:
        tools = (await client.list_tools()).tools
        result = await client.call_tool("search_docs", {"query": "연차"})
        version = getattr(client, "protocol_version", None) or getattr(client.session, "protocol_version", None)
        seen = {"protocol": version, "tools": [tool.name for tool in tools]}
        print(json.dumps({**seen, "result": result.model_dump(mode="json", by_alias=True)}, ensure_ascii=False))


asyncio.run(main(*sys.argv[1:]))
