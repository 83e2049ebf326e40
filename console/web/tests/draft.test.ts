import { expect, it } from 'vitest';
import { argument, emptyDraft, emptyParam, fromTool, paramFlaw, schemaOf, steps, toTool } from '../src/lib/draft';
import { samples } from '../src/lib/samples';

it('a tool comes back from the hub as it went', () => {
  for (const sample of samples) {
    expect(toTool(fromTool(sample), true)).toMatchObject({ ...sample, params: sample.params });
    expect(steps(fromTool(sample), true)).toEqual([true, true, true]);
  }
});

it('says which step is not right', () => {
  const draft = { ...emptyDraft(), name: 'Bad name', agent: 'x', sql: 'SELECT :a' };
  expect(steps(draft, true)).toEqual([false, true, false]);
  draft.name = 'good';
  draft.params = [emptyParam('a'), emptyParam('a')];
  expect(paramFlaw(draft, draft.params[0])).toBe('p.bad.twice');
  expect(steps(draft, false)).toEqual([false, false, true]);
});

it('writes the schema that a model sees, and reads what is typed', () => {
  const kind = { ...emptyParam('kind'), type: 'ENUM' as const, choices: 'USER, TOOL', required: false, initial: 'USER' };
  expect(schemaOf({ ...emptyDraft(), params: [kind] })).toEqual({ type: 'object', properties: { kind: { type: 'string', enum: ['USER', 'TOOL'], default: 'USER' } }, required: [] });
  expect(argument({ ...emptyParam('n'), type: 'NUMBER' }, '5')).toBe(5);
  expect(argument({ ...emptyParam('s') }, '')).toBe('');
  expect(argument(kind, '')).toBeUndefined();
});

it('keeps the types and limits that only statements have', () => {
  const tool = {
    ...toTool({ ...emptyDraft(), name: 'sorted', agent: 'x', sql: 'SELECT 1 ORDER BY :by', maxRows: '20', timeout: '900', paged: true }, true),
    params: [
      { param_name: 'by', param_type: 'IDENTIFIER', is_required: true, description: '', enum: ['name', 'joined DESC'] },
      { param_name: 'day', param_type: 'DATE', is_required: true, description: '' },
      { param_name: 'question', param_type: 'EMBEDDING', is_required: true, description: '' },
    ],
  };
  expect(tool).toMatchObject({ max_rows: 20, timeout_ms: 900, paged: true });
  expect(toTool(fromTool(tool), true)).toEqual(tool);
  expect(toTool({ ...fromTool(tool), maxRows: 'many' }, true).max_rows).toBe(0);
});
