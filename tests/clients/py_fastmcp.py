"""fastmcp: lists, calls, prints what it saw. Usage as py_mcp1.py."""

import asyncio
import json
import sys

from fastmcp import Client
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport


async def main(kind, first, *rest):
    transport = {
        "http": lambda: StreamableHttpTransport(first),
        "sse": lambda: SSETransport(first),
        "stdio": lambda: StdioTransport(command=first, args=list(rest)),
    }[kind]()
    async with Client(transport) as client:
        tools = await client.list_tools()
        result = await client.call_tool("search_docs", {"query": "연차"})
        seen = {"tools": [tool.name for tool in tools]}
        result = {"content": [{"text": result.content[0].text}], "structuredContent": result.structured_content}
        print(json.dumps({**seen, "result": result}, ensure_ascii=False))


asyncio.run(main(*sys.argv[1:]))
