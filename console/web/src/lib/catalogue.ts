import type { Key } from './i18n.svelte';

/** A well-known server to start from, as the `mcpServers` entry that its README gives. */
export interface KnownServer {
  name: string;
  says: Key;
  /** What it needs on the machine of the hub, or an account. */
  needs: 'node' | 'uv' | 'account' | 'nothing';
  entry: { command?: string; args?: string[]; type?: string; url?: string };
}

const npx = (...args: string[]) => ({ command: 'npx', args: ['-y', ...args] });
const uvx = (...args: string[]) => ({ command: 'uvx', args });
const remote = (url: string) => ({ type: 'http', url });

export const knownServers: KnownServer[] = [
  { name: 'filesystem', says: 'cat.filesystem', needs: 'node', entry: npx('@modelcontextprotocol/server-filesystem', '/path/to/a/folder') },
  { name: 'memory', says: 'cat.memory', needs: 'node', entry: npx('@modelcontextprotocol/server-memory') },
  { name: 'fetch', says: 'cat.fetch', needs: 'uv', entry: uvx('mcp-server-fetch') },
  { name: 'git', says: 'cat.git', needs: 'uv', entry: uvx('mcp-server-git', '--repository', '/path/to/a/repository') },
  { name: 'time', says: 'cat.time', needs: 'uv', entry: uvx('mcp-server-time') },
  { name: 'playwright', says: 'cat.playwright', needs: 'node', entry: npx('@playwright/mcp@latest') },
  { name: 'context7', says: 'cat.context7', needs: 'node', entry: npx('@upstash/context7-mcp') },
  { name: 'deepwiki', says: 'cat.deepwiki', needs: 'nothing', entry: remote('https://mcp.deepwiki.com/mcp') },
  { name: 'github', says: 'cat.github', needs: 'account', entry: remote('https://api.githubcopilot.com/mcp/') },
  { name: 'notion', says: 'cat.notion', needs: 'account', entry: remote('https://mcp.notion.com/mcp') },
  { name: 'linear', says: 'cat.linear', needs: 'account', entry: remote('https://mcp.linear.app/mcp') },
  { name: 'sentry', says: 'cat.sentry', needs: 'account', entry: remote('https://mcp.sentry.dev/mcp') },
];

/** What is pasted for the server of this name. Pure. */
export function catalogueText(name: string): string {
  const known = knownServers.find((it) => it.name === name);
  return known ? JSON.stringify({ mcpServers: { [known.name]: known.entry } }, null, 2) : '';
}
