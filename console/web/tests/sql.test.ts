import { expect, it } from 'vitest';
import { reads, tablesIn, templates, usedParams } from '../src/lib/sql';

const names = (sql: string) => usedParams(sql).map((it) => it.name);

it('finds parameters where the hub does', () => {
  expect(names('SELECT :a, b::text, :a_1 FROM t')).toEqual(['a', 'a_1']);
  expect(names(`SELECT ':x', "q:y", 'it''s :z' -- :c\n/* :d */ , :e`)).toEqual(['e']);
  expect(names('SELECT $$ :x $$, $t$ :y $t$, :z')).toEqual(['z']);
  expect(names("SELECT 'open :x")).toEqual([]);
  expect(usedParams('x = :ab')[0]).toEqual({ name: 'ab', from: 4, to: 7 });
});

it('finds templates and what only reads', () => {
  expect(templates('a = {{ user }}').map((it) => it.name)).toEqual(['user']);
  expect([reads('  select 1'), reads('-- x\nWITH a AS (SELECT 1) SELECT 1'), reads('DELETE FROM t'), reads('')]).toEqual([true, true, false, true]);
});

it('knows which tables a statement names', () => {
  expect([...tablesIn('SELECT * FROM hr.people p JOIN Limits l ON 1=1', ['people', 'limits', 'other'])]).toEqual(['people', 'limits']);
});
