"""Python mcp 1: lists, calls, prints what it saw. Usage: py_mcp1.py http URL | sse URL | stdio COMMAND ARGS..."""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


async def main(kind, first, *rest):
    opened = {
        "http": lambda: streamable_http_client(first),
        "sse": lambda: sse_client(first),
        "stdio": lambda: stdio_client(StdioServerParameters(command=first, args=list(rest))),
    }[kind]()
    async with opened as streams, ClientSession(streams[0], streams[1]) as session:
        started = await session.initialize()
        tools = (await session.list_tools()).tools
        result = await session.call_tool("search_docs", {"query": "연차"})
        seen = {"protocol": started.protocolVersion, "tools": [tool.name for tool in tools]}
        print(json.dumps({**seen, "result": result.model_dump(mode="json", by_alias=True)}, ensure_ascii=False))


asyncio.run(main(*sys.argv[1:]))
