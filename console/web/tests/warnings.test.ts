import { describe, expect, it } from 'vitest';
import { entriesNamed } from '../src/lib/paste';
import { attemptsOf, configOf } from '../src/lib/servers';
import { readWarning } from '../src/lib/warnings';

describe('warnings of the hub', () => {
  const check = (sentence: string, key: string, values: Record<string, string>) => expect(readWarning(sentence)).toEqual({ key, values });
  it('are known by their sentences', () => {
    check('bash is a shell: it runs any command it is given', 'warning.shell', { program: 'bash' });
    check('python3 runs code or other programs named by its argument "-c"', 'warning.code', { program: 'python3', argument: '-c' });
    check('the variable LD_PRELOAD decides which code is loaded', 'warning.variable', { name: 'LD_PRELOAD' });
    check('the variable KUBECONFIG decides where settings or programs are found', 'warning.folder', { name: 'KUBECONFIG' });
    check('the argument "--network=host" of docker gives the container access to this machine', 'warning.container', { argument: '--network=host', program: 'docker' });
  });
  it('are left as they are when the sentence is new', () => {
    expect(readWarning('this program is old')).toBeNull();
  });
});

describe('a server as it is sent and shown', () => {
  it('has the members of its transport only', () => {
    const config = { command: 'x', args: [], cwd: '', url: 'http://127.0.0.1/', headers: { a: 'b' } };
    expect(configOf({ name: 'a', transportType: 'STDIO', config, missing: [] })).toEqual({ command: 'x', args: [] });
    expect(configOf({ name: 'a', transportType: 'HTTP', config, missing: [] })).toEqual({ url: 'http://127.0.0.1/', headers: { a: 'b' } });
  });
  it('tells the attempts made and the next one', () => {
    const of = (status: 'FAILED' | 'CONNECTING' | 'CONNECTED', attempts: number, nextAttemptAt: number | null) => attemptsOf({ status, attempts, nextAttemptAt }, 1000);
    expect(of('FAILED', 2, 9000)).toEqual({ key: 'attempts.next', values: { n: 2, s: 8 } });
    expect(of('FAILED', 5, null)).toEqual({ key: 'attempts.over', values: { n: 5 } });
    expect(of('CONNECTING', 3, null)).toEqual({ key: 'attempts.now', values: { n: 3 } });
    expect(of('CONNECTING', 0, null)).toBeNull();
    expect(of('CONNECTED', 0, null)).toBeNull();
  });
});

describe('the entries of a file that are imported anyway', () => {
  it('are those that were named, wherever the file keeps them', () => {
    const one = { command: 'bash' };
    for (const file of [{ mcpServers: { a: one, b: {} } }, { servers: { a: one, b: {} } }, { mcp: { servers: { a: one, b: {} } } }, { context_servers: { a: one } }]) {
      expect(entriesNamed(file, ['a'])).toEqual({ a: one });
    }
    expect(entriesNamed([{ name: 'a', ...one, autoConnect: false }, { name: 'b' }], ['a'])).toEqual({ a: { ...one, disabled: true } });
    expect(entriesNamed('text', ['a'])).toEqual({});
  });
});
