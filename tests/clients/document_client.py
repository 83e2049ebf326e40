"""Calls every example of the specification of the data tools through one client library.

Usage: document_client.py mcp|fastmcp|adk URL. Prints one JSON object: for every case
what the library shows of the result, and the output schemas of the tools.
"""

import asyncio
import json
import os
import sys

CASES = {
    "embedding": ("get_text_embedding", {"text_list": ["주문 날짜", "email"]}),
    "search of the example": ("get_sim_search", {"query_list": ["사용자 이메일 칼럼", "주문 날짜 필드"], "n_results": 3}),
    "search with the default": ("get_sim_search", {"query_list": ["사용자 이메일"]}),
    "search of the callback": ("get_sim_search", {"query_list": ["사용자 이메일"], "n_results": 15}),
    "search for everything": ("get_sim_search", {"query_list": ["no document"], "n_results": 1000}),
    "search for nothing": ("get_sim_search", {"query_list": [""], "n_results": 1}),
    "search for one by name": ("get_sim_search", {"query_list": ["a column that has an embedding and no document"], "n_results": 1}),
    "search with a whole float": ("get_sim_search", {"query_list": ["email"], "n_results": 2.0}),
    "search with a quoted number": ("get_sim_search", {"query_list": ["email"], "n_results": "2"}),
    "query of the example": ("query_bga_database", {"generated_sql": "SELECT user_id, username, email FROM users LIMIT 3"}),
    "query with NBSP": ("query_bga_database", {"generated_sql": "SELECT\u00a0username FROM\u00a0users WHERE user_id = 101"}),
    "query without rows": ("query_bga_database", {"generated_sql": "SELECT user_id FROM users WHERE false"}),
    "query with a semicolon": ("query_bga_database", {"generated_sql": "SELECT 1 AS one;"}),
    "query of many types": (
        "query_bga_database",
        {"generated_sql": "SELECT true AS t, null AS n, '{\"a\": [1, \"나\"]}'::jsonb AS j, ARRAY[1,2] AS l, 1.5::float8 AS f, 'x' AS s"},
    ),
    "syntax error of the example": ("query_bga_database", {"generated_sql": "SELEC user_id FROM users"}),
    "unknown column": ("query_bga_database", {"generated_sql": "SELECT user_idd FROM users"}),
    "unknown table": ("query_bga_database", {"generated_sql": "SELECT *\nFROM\tnosuch"}),
    "unknown function": ("query_bga_database", {"generated_sql": "SELECT sum(username) FROM users"}),
    "long line": (
        "query_bga_database",
        {"generated_sql": "SELECT '한글 문자열이 길게 이어집니다', 'and more of it until the line is long', nosuch FROM users WHERE true"},
    ),
    "wrong literal": ("query_bga_database", {"generated_sql": "SELECT 'x'::int"}),
    "division by zero": ("query_bga_database", {"generated_sql": "SELECT 1 / (user_id - user_id) FROM users"}),
    "two rows as one": ("query_bga_database", {"generated_sql": "SELECT (SELECT user_id FROM users)"}),
    "NBSP of the example": ("serialize_for_cell", {"data": "SELECT\u00a0user_id,\u00a0email\u00a0FROM users"}),
    "empty text": ("serialize_for_cell", {"data": ""}),
    "text that looks like JSON": ("serialize_for_cell", {"data": '{"a": 1}'}),
    "wrong number": ("get_sim_search", {"query_list": ["a"], "n_results": 0}),
    "wrong type": ("get_sim_search", {"query_list": "a"}),
    "missing argument": ("get_text_embedding", {}),
    "unknown argument": ("serialize_for_cell", {"data": "a", "more": 1}),
}


async def with_mcp(url):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async with streamable_http_client(url) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        schemas = {tool.name: tool.output_schema for tool in tools}

        async def call(name, arguments):
            result = await session.call_tool(name, arguments)
            texts = [part.text for part in result.content]
            return {"error": result.is_error, "texts": texts, "structure": result.structured_content}

        return schemas, {case: await call(*request) for case, request in CASES.items()}


async def with_fastmcp(url):
    from fastmcp import Client

    async with Client(url) as client:
        schemas = {tool.name: tool.output_schema for tool in await client.list_tools()}

        async def call(name, arguments):
            result = await client.call_tool(name, arguments, raise_on_error=False)
            texts = [part.text for part in result.content]
            return {"error": result.is_error, "texts": texts, "structure": result.structured_content, "data": result.data}

        return schemas, {case: await call(*request) for case, request in CASES.items()}


async def with_adk(url):
    # Otherwise it looks for credentials on the network.
    os.environ["NO_GCE_CHECK"] = "true"
    from google.adk.tools.mcp_tool import McpToolset, StreamableHTTPConnectionParams

    class Context:
        """McpTool reads optional attributes only."""

        def __getattr__(self, _):
            return None

    toolset = McpToolset(connection_params=StreamableHTTPConnectionParams(url=url))
    try:
        tools = {tool.name: tool for tool in await toolset.get_tools()}
        results = {}
        for case, (name, arguments) in CASES.items():
            shown = await tools[name].run_async(args=arguments, tool_context=Context())
            texts = [part["text"] for part in shown["content"]]
            results[case] = {"error": shown["isError"], "texts": texts, "structure": shown.get("structuredContent")}
        return {}, results
    finally:
        await toolset.close()


library, url = sys.argv[1:]
schemas, results = asyncio.run({"mcp": with_mcp, "fastmcp": with_fastmcp, "adk": with_adk}[library](url))
print(json.dumps({"schemas": schemas, "results": results}, ensure_ascii=False))
