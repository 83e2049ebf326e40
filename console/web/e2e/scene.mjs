// A hub in which something goes on: servers in every state, and calls.
import { everything, fixture, Hub } from './hub.mjs';

export const config = `
log:
  level: error
mcp:
  reconnection:
    initial-delay-ms: 8000
  servers:
    - name: reports
      transport: stdio
      command: ${fixture}
      args: [stdio]
`;

export async function scene() {
  const hub = await Hub.start({ config });
  const add = (name, config, transportType = 'STDIO', more = {}) => hub.api('POST', '/api/mcp/servers', { name, transportType, config, autoConnect: true, ...more });
  await Promise.all([
    add('everything', { command: 'node', args: [everything, 'stdio'] }),
    add('fixture', { command: fixture, args: ['stdio'] }),
    add('warehouse', { command: 'ls', args: ['/no/such/warehouse'], env: { WAREHOUSE_TOKEN: 'canary-secret' } }),
    add('swagger-agent', { url: 'http://127.0.0.1:9/sse' }, 'SSE', { autoConnect: false }),
    add('slack', { url: 'http://127.0.0.1:9/mcp' }, 'HTTP', { autoConnect: false }),
  ]);
  await hub.api('POST', '/api/mcp/servers/slack/disable');
  for (let n = 0; n < 14; n++) {
    await hub.mcp('tools/call', { name: 'get_employee_info', arguments: { employee_id: `EMP00${1 + (n % 4)}` } });
    await hub.mcp('tools/call', { name: 'everything__echo', arguments: { message: `hello ${n}` } }, 'Claude Code', '2.1');
    if (n % 4 === 0) await hub.mcp('tools/call', { name: 'query_bga_database', arguments: { generated_sql: 'SELECT name, department FROM employees LIMIT 5' } });
  }
  await hub.mcp('tools/call', { name: 'search_docs', arguments: { query: 5 } });
  await hub.mcp('tools/call', { name: 'query_bga_database', arguments: { generated_sql: 'SELECT nothing FROM nowhere' } });
  await hub.mcp('tools/list', {});
  return hub;
}
