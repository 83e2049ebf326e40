import { expect, it } from 'vitest';
import { cell, rowsOf, shown } from '../src/lib/result';
import { fieldsOf, read, starting, write } from '../src/lib/schema';

const schema = {
  type: 'object',
  required: ['id', 'kind'],
  properties: {
    limit: { type: 'integer', default: 5 },
    id: { type: 'string', description: 'Whose' },
    kind: { enum: ['USER', 'TOOL'] },
    on: { anyOf: [{ type: 'boolean' }, { type: 'null' }] },
    list: { type: 'array' },
  },
};

it('makes fields of a schema, required ones first', () => {
  const fields = fieldsOf(schema);
  expect(fields.map((it) => [it.name, it.kind])).toEqual([['id', 'text'], ['kind', 'choice'], ['limit', 'integer'], ['on', 'boolean'], ['list', 'json']]);
  expect(starting(fields)).toEqual({ id: '', kind: 'USER' });
  expect(read(fields[2], '1.5')).toEqual({ why: 'integer' });
  expect(read(fields[2], '7')).toEqual({ value: 7 });
  expect(read(fields[4], '[1')).toEqual({ why: 'json' });
  expect(write(fields[4], [1])).toBe('[1]');
  expect(fieldsOf(null)).toEqual([]);
});

it('finds rows in a result, wherever they are', () => {
  const result = { content: [{ type: 'text', text: '{"success":true,"result":[{"a":1},{"b":null}]}' }] };
  expect(shown(result).rows).toEqual({ columns: ['a', 'b'], rows: [{ a: 1 }, { b: null }] });
  expect(rowsOf([1, 2])).toBeNull();
  expect(shown({ content: [{ type: 'text', text: 'plain' }], isError: true })).toMatchObject({ rows: null, text: 'plain', isError: true });
  expect(cell(null)).toBe('NULL');
});
