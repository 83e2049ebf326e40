import { describe, expect, it } from 'vitest';
import { fitName, isSecret, split, understand } from '../src/lib/paste';

const one = (text: string) => {
  const found = understand(text);
  if (found.kind !== 'servers') throw new Error(JSON.stringify(found));
  return found.drafts[0];
};

describe('what people paste', () => {
  it('reads mcpServers of a README, with comments and trailing commas', () => {
    const found = understand('{ "mcpServers": { // mine\n "My Files": {"command":"npx","args":["-y","x"],}, "b": {"url":"https://b.example/sse"} } }');
    expect(found).toMatchObject({ kind: 'servers', drafts: [{ name: 'my-files', transportType: 'STDIO', config: { command: 'npx', args: ['-y', 'x'] } }, { name: 'b', transportType: 'SSE' }] });
  });
  it('reads a fragment without its outer braces, one entry, and VS Code', () => {
    expect(one('"git": {"command": "uvx", "args": ["mcp-server-git"]},')).toMatchObject({ name: 'git' });
    expect(one('{"command":"uvx","args":["mcp-server-fetch"]}')).toMatchObject({ name: 'fetch' });
    expect(one('{"servers":{"x":{"type":"http","url":"https://x.example/mcp","headers":{"Authorization":"Bearer ${input:t}"}}}}')).toMatchObject({ transportType: 'HTTP', missing: ['headers.Authorization'] });
  });
  it('reads command lines with variables and quotes', () => {
    expect(one('API_KEY="a b" npx -y @modelcontextprotocol/server-filesystem "/my data"')).toMatchObject({
      name: 'filesystem', config: { command: 'npx', args: ['-y', '@modelcontextprotocol/server-filesystem', '/my data'], env: { API_KEY: 'a b' } },
    });
    expect(one('docker run -i --rm -e TOKEN ghcr.io/github/github-mcp-server:latest').name).toBe('github');
    expect(one('/opt/tools/warehouse-mcp --dsn x').name).toBe('warehouse');
  });
  it('reads lines that add a server to another client', () => {
    expect(one('claude mcp add --transport http stripe https://mcp.stripe.com -H "Authorization: Bearer k"')).toMatchObject({ name: 'stripe', transportType: 'HTTP', config: { url: 'https://mcp.stripe.com', headers: { Authorization: 'Bearer k' } } });
    expect(one('claude mcp add airtable -e AIRTABLE_API_KEY=YOUR_KEY -- npx -y airtable-mcp-server')).toMatchObject({ name: 'airtable', config: { command: 'npx', args: ['-y', 'airtable-mcp-server'] }, missing: ['env.AIRTABLE_API_KEY'] });
    expect(one(`claude mcp add-json weather '{"type":"stdio","command":"/w","args":["a"]}'`)).toMatchObject({ name: 'weather', config: { command: '/w', args: ['a'] } });
  });
  it('reads addresses', () => {
    expect(one('https://mcp.slack.com/mcp')).toMatchObject({ name: 'slack', transportType: 'HTTP' });
    expect(one('http://localhost:8081/sse')).toMatchObject({ name: 'local-8081', transportType: 'SSE' });
  });
  it('says what it does not understand', () => {
    expect(understand('  ').kind).toBe('nothing');
    expect(understand('{"a": }').kind).toBe('wrong');
    expect(understand('{"a": 1}').kind).toBe('wrong');
  });
});

it('names fit and secrets are told apart', () => {
  expect(fitName('My Server!')).toBe('my-server');
  expect([isSecret('GITHUB_TOKEN'), isSecret('api-key'), isSecret('PATH'), isSecret('max_tokens')]).toEqual([true, true, false, false]);
  expect(split(`a 'b c' "d\\"e" f\\ g ""`)).toEqual(['a', 'b c', 'd"e', 'f g', '']);
});
