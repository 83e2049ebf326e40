import { describe, expect, test } from 'vitest';
import { readMessage, refusedHost } from '../src/lib/messages';
import { definitionOf, formOf } from '../src/lib/models';

describe('the form of a model', () => {
  test('what is typed is what is sent, and what is empty keeps its default', () => {
    const definition = { name: 'qwen', backend: 'openai', base_url: 'http://127.0.0.1:1/v1', aliases: ['a', 'b'], max_concurrent: 4, price: { input: 0.5, output: 2 }, api_key: '***', tool_mode: 'prompt', dialect: 'auto', starts_in_reasoning: 'auto' };
    expect(definitionOf(formOf(definition))).toEqual(definition);
    expect(definitionOf(formOf({ name: ' x ' }))).toEqual({ name: 'x', backend: 'openai', tool_mode: 'auto', dialect: 'auto', starts_in_reasoning: 'auto', api_key: '' });
    expect(definitionOf({ ...formOf({ name: 'x' }), timeout_ms: 'soon' }).timeout_ms).toBe('soon');
  });
});

describe('a host that is in the way', () => {
  test('is named where an admin may allow it', () => {
    const sentence = 'the address "https://mcp.example.com/mcp" is refused: mcp.example.com is not a listed host; allow it in the console, or add it to outbound.allowed_hosts in maru.yaml';
    expect(refusedHost(sentence)).toBe('mcp.example.com');
    expect(readMessage(sentence)?.key).toBe('msg.host.unlisted');
    expect(refusedHost('10.0.0.7 is a private address; to allow it, add it to outbound.allowed_hosts in maru.yaml')).toBe('');
    expect(readMessage('the host "db.lan" is refused: db.lan is a private name; allow it in the console, or add it to outbound.allowed_hosts in maru.yaml')?.key).toBe('msg.host.private');
    expect(readMessage('the host "x" is refused: other')?.key).toBe('msg.host');
  });
});
