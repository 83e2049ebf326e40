// @ts-expect-error The page has no types of Node.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { builtins, undeclared } from '../src/lib/expression';

const names = (text: string, ...declared: string[]) => undeclared(text, declared).map((it) => it.name);

describe('names of an expression', () => {
  it('marks what nobody declared', () => {
    expect(names('num1 * num3', 'num1')).toEqual(['num3']);
    expect(names("f'{가격 * 수량}'", '가격')).toEqual(['수량']);
    expect(undeclared('a +\n bb', [])).toEqual([{ name: 'a', from: 0, to: 1 }, { name: 'bb', from: 5, to: 7 }]);
  });
  it('knows assignments, comprehensions, lambdas, members and keywords', () => {
    expect(names('total = a + 1\nresult = total', 'a')).toEqual([]);
    expect(names('x, y = a, 2\nresult = x + y', 'a')).toEqual([]);
    expect(names('[x * 2 for x in rows if x > 1]', 'rows')).toEqual([]);
    expect(names('{k: v for k, v in pairs}', 'pairs')).toEqual([]);
    expect(names("sorted(rows, key=lambda row: row['n'], reverse=True)", 'rows')).toEqual([]);
    expect(names('timedelta(days=1).days + math.pi')).toEqual([]);
    expect(names('[x for x in x_list]')).toEqual(['x_list']);
  });
  it('knows the functions of the reference', () => {
    const page = readFileSync(new URL('../../../docs/expressions.md', import.meta.url), 'utf8');
    const row = (name: string) => page.match(new RegExp(`^\\| ${name} \\|.*$`, 'm'))?.[0].match(/`([a-z0-9 ]{60,})`/)?.[1].split(' ') ?? [];
    const listed = [...row('functions'), ...row('mathematics')];
    expect(listed.length).toBeGreaterThan(60);
    expect(listed.filter((it) => !builtins.has(it))).toEqual([]);
  });
});
