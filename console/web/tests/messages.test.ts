import { describe, expect, it } from 'vitest';
import { en } from '../src/lib/en';
import { ko } from '../src/lib/ko';
import { withParticles } from '../src/lib/korean';
import { readMessage, wrongArgument } from '../src/lib/messages';
import { barsOf, rowsOf, runValue, shown } from '../src/lib/result';
import { usedParams } from '../src/lib/sql';
import { shortType } from '../src/lib/sqltype';

/** The texts of errors, as the hub's source has them. */
const hubErrors = import.meta.glob<string>(
  ['../../../crates/maru-postgres/src/{connect_error,lib}.rs', '../../../crates/maru-sources/src/lib.rs', '../../../crates/maru-tools/src/sources.rs'],
  { query: '?raw', import: 'default', eager: true },
);

describe('sentences of the hub', () => {
  it('are known with what they name', () => {
    expect(readMessage('the parameter :user_name is used and not declared')).toEqual({ key: 'msg.undeclared', values: { name: 'user_name' } });
    expect(readMessage('there is no source "nope"; known are sample')?.values).toEqual({ name: 'nope', known: 'sample' });
    expect(readMessage('something else')).toBeNull();
  });
  // A reason that the hub has and the console does not know would be shown in English.
  it.each(Object.entries(hubErrors))('are all known of %s', (file, source) => {
    const errors = [...source.matchAll(/#\[error\(\s*"((?:[^"\\]|\\.)*)"/g)].map((it) => it[1]).filter((it) => !/^\{\w+\}/.test(it));
    expect(errors.length).toBeGreaterThan(3);
    for (const error of errors) {
      const sentence = error.replace(/\{[^}]*:\?\}/g, '"shop"').replace('{option}', 'sslkey').replace(/\{[^}]*\}/g, '7');
      const found = readMessage(sentence);
      expect(found, sentence).not.toBeNull();
      expect(ko[found!.key], sentence).not.toBe(en[found!.key]);
    }
  });
  it('are all known where a server, a limit or an import fails', () => {
    const sentences = {
      'cannot start npx: not found; install Node.js (it includes npx), or name the full path of the program': 'msg.start.missing',
      'cannot start /opt/x: permission denied': 'msg.start',
      'the server did not connect within 30s': 'msg.connect.slow',
      'server files did not answer: did not answer within 2s': 'msg.server.silent',
      'the server refused the handshake in protocol version 2025-06-18 with error -32602': 'msg.handshake',
      'the user bot has made the 5 calls of today; the limit resets at 2026-11-20T00:00:00Z (in 2 h 1 min)': 'msg.limit.day',
      'the tool search_docs takes 5 calls a minute; try again in 12 s, at 2026-11-20T00:00:00Z': 'msg.limit.minute',
      'nothing was imported: fill in FILES_KEY': 'msg.import.missing',
      'the file has version 2; this maru reads version 1': 'msg.import.version',
      'unknown member "thing"': 'msg.import.member',
      'entry 2 of tools has no name': 'msg.import.nameless',
    };
    for (const [sentence, key] of Object.entries(sentences)) expect([sentence, readMessage(sentence)?.key]).toEqual([sentence, key]);
  });
  it('name the argument that is wrong', () => {
    expect(wrongArgument('wrong arguments: "user_name" is a required property; expected get(user_name: string)')).toBe('user_name');
    expect(wrongArgument('wrong arguments: num1: "x" is not of type "number" (First); expected multiply(num1: number)')).toBe('num1');
    expect(wrongArgument('the database says: no such column')).toBe('');
  });
});

describe('the test run', () => {
  it('shows the rows of a result that was cut', () => {
    expect(runValue({ rows: [{ a: 1 }], truncated: true, note: 'more' })).toEqual({ value: [{ a: 1 }], truncated: true });
    expect(runValue({ a: 1 })).toEqual({ value: [{ a: 1 }], truncated: false });
    expect(runValue(15)).toEqual({ value: 15, truncated: false });
  });
  it('is a chart where there is a label and a number', () => {
    const rows = rowsOf([{ id: 1, name: 'a', n: 3 }, { id: 2, name: 'b', n: null }]);
    expect(barsOf(rows)).toEqual({ label: 'name', number: 'n', bars: [{ label: 'a', value: 3 }, { label: 'b', value: 0 }], left: 0 });
    expect(barsOf(rowsOf([{ name: 'a' }, { name: 'b' }]))).toBeNull();
    expect(barsOf(rowsOf([{ name: 'a', n: 1 }]))).toBeNull();
  });
});

describe('the result of a tool', () => {
  it('has pictures to show and files to save', () => {
    const view = shown({ content: [
      { type: 'image', data: 'AAAA', mimeType: 'image/png' },
      { type: 'audio', data: 'BBBB', mimeType: 'audio/wav' },
      { type: 'resource', resource: { uri: 'file:///a/report 1.pdf?x', blob: 'CCCC', mimeType: 'application/pdf' } },
      { type: 'resource', resource: { uri: 'file:///note.txt', text: 'hello' } },
      { type: 'resource_link', uri: 'file:///b.txt', name: 'b' },
    ] });
    expect(view.images.map((it) => it.data)).toEqual(['AAAA']);
    expect(view.files.map((it) => it.name)).toEqual(['result-2.wav', 'report_1.pdf']);
    expect(view.text).toBe('file:///a/report 1.pdf?x\nhello\nb  file:///b.txt');
  });
});

describe('names and types of SQL', () => {
  it('finds Korean parameters and leaves casts and slices alone', () => {
    expect(usedParams('SELECT :부서, a::text, b[1:n] FROM t WHERE x = :limit_1').map((it) => it.name)).toEqual(['부서', 'limit_1']);
  });
  it('keeps types apart', () => {
    expect(['timestamp without time zone', 'timestamp with time zone', 'character varying(20)', 'character varying(200)[]', 'double precision', 'INTEGER'].map(shortType)).toEqual(['timestamp', 'timestamptz', 'varchar(20)', 'varchar(200)[]', 'double', 'integer']);
  });
});

it('chooses Korean particles', () => {
  const cases = [['버전 1이(가) 버전 3(으)로', '버전 1이 버전 3으로'], ['버전 2을(를)', '버전 2를'], ['버전 7(으)로', '버전 7로'], ['“도구”과(와)', '“도구”와'], ['sum을(를)', 'sum을(를)'], ['서울은(는)', '서울은']];
  for (const [text, expected] of cases) expect(withParticles(text)).toBe(expected);
});
