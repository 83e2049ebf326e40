"""A client that lists no tools: it finds one, and calls it. Prints what it saw.

Usage: search_client.py mcp1|mcp2|fastmcp URL
"""

import asyncio
import contextlib
import json
import sys


@contextlib.asynccontextmanager
async def mcp1(url):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async with streamable_http_client(url) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()

        async def call(name, arguments):
            return (await session.call_tool(name, arguments)).structuredContent

        yield [tool.name for tool in (await session.list_tools()).tools], call


@contextlib.asynccontextmanager
async def mcp2(url):
    from mcp import Client

    async with Client(url) as client:

        async def call(name, arguments):
            return (await client.call_tool(name, arguments)).structured_content

        yield [tool.name for tool in (await client.list_tools()).tools], call


@contextlib.asynccontextmanager
async def fastmcp(url):
    from fastmcp import Client

    async with Client(url) as client:

        async def call(name, arguments):
            return (await client.call_tool(name, arguments)).structured_content

        yield [tool.name for tool in await client.list_tools()], call


async def main(library, url):
    async with globals()[library](url) as (tools, call):
        found = (await call("find_tools", {"query": "search documents", "limit": 1}))["tools"][0]
        # The schema says what the tool takes.
        arguments = {name: "연차" for name in found["inputSchema"]["required"]}
        result = await call("call_tool", {"name": found["name"], "arguments": arguments})
        print(json.dumps({"tools": tools, "found": found["name"], "result": result}, ensure_ascii=False))


asyncio.run(main(*sys.argv[1:]))
