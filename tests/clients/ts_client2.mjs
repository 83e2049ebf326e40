// TypeScript client 2: lists, calls, prints what it saw. Usage as ts_sdk1.mjs; ERA=legacy|auto picks the protocol's.
import { Client, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
const [kind, first, ...rest] = process.argv.slice(2);
const transport = kind === 'http' ? new StreamableHTTPClientTransport(new URL(first))
  : kind === 'sse' ? new SSEClientTransport(new URL(first))
  : new StdioClientTransport({ command: first, args: rest });
const client = new Client({ name: 'ts-client-2', version: '1' }, { capabilities: {}, versionNegotiation: { mode: process.env.ERA ?? 'legacy' } });
await client.connect(transport);
const { tools } = await client.listTools();
const result = await client.callTool({ name: 'search_docs', arguments: { query: '연차' } });
console.log(JSON.stringify({ protocol: client.getNegotiatedProtocolVersion?.(), tools: tools.map(it => it.name), result }));
await client.close();
