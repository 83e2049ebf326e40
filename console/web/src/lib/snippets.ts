/** What to paste where, for each client. Pure. */
import type { Key } from './i18n.svelte';

export interface Snippet {
  id: string;
  label: string;
  how: Key;
  file?: string;
  text: string;
}

export function snippets(origin: string, withToken: boolean): Snippet[] {
  const url = `${origin}/mcp`;
  const token = 'Bearer YOUR_TOKEN';
  const headers = withToken ? { headers: { Authorization: token } } : {};
  const json = (value: unknown) => JSON.stringify(value, null, 2);
  const option = withToken ? ` --header "Authorization: ${token}"` : '';
  return [
    { id: 'claude-code', label: 'Claude Code', how: 'connect.terminal', text: `claude mcp add --transport http maru ${url}${option}` },
    { id: 'claude-desktop', label: 'Claude Desktop', how: 'connect.stdio', file: 'claude_desktop_config.json', text: json({ mcpServers: { maru: { command: '/path/to/maru', args: ['stdio'] } } }) },
    { id: 'cursor', label: 'Cursor', how: 'connect.file', file: '~/.cursor/mcp.json', text: json({ mcpServers: { maru: { url, ...headers } } }) },
    { id: 'vscode', label: 'VS Code', how: 'connect.file', file: '.vscode/mcp.json', text: json({ servers: { maru: { type: 'http', url, ...headers } } }) },
    { id: 'other', label: 'JSON', how: 'connect.json', text: json({ mcpServers: { maru: { url, ...headers } } }) },
    {
      id: 'curl',
      label: 'curl',
      how: 'connect.curl',
      text: `curl -s ${origin}/sse \\\n  -H 'content-type: application/json' \\${withToken ? `\n  -H 'authorization: ${token}' \\` : ''}\n  -d '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'`,
    },
  ];
}
