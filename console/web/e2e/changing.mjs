// An MCP server over stdio whose two tools say what a file says: node changing.mjs FILE
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const tools = () => ['first', 'second'].map((name) => ({ name, description: `${name} ${readFileSync(process.argv[2], 'utf8').trim()}`, inputSchema: { type: 'object' } }));
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method } = JSON.parse(line);
  if (id === undefined) continue;
  const results = { initialize: () => ({ protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'changing', version: '1' } }), 'tools/list': () => ({ tools: tools() }), ping: () => ({}) };
  const answer = results[method] ? { result: results[method]() } : { error: { code: -32601, message: `Method not found: ${method}` } };
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, ...answer })}\n`);
}
