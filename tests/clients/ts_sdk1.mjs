// TypeScript SDK 1: lists, calls, prints what it saw. Usage: ts_sdk1.mjs http URL | sse URL | stdio COMMAND ARGS...
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
const [kind, first, ...rest] = process.argv.slice(2);
const transport = kind === 'http' ? new StreamableHTTPClientTransport(new URL(first))
  : kind === 'sse' ? new SSEClientTransport(new URL(first))
  : new StdioClientTransport({ command: first, args: rest });
const client = new Client({ name: 'ts-sdk-1', version: '1' }, { capabilities: {} });
await client.connect(transport);
const { tools } = await client.listTools();
const result = await client.callTool({ name: 'search_docs', arguments: { query: '연차' } });
console.log(JSON.stringify({ server: client.getServerVersion().name, tools: tools.map(it => it.name), result }));
await client.close();
