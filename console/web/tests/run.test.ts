import { expect, it } from 'vitest';
import { emptyRun, EventReader, fromRecord, lacksContext, onEvent } from '../src/lib/run';

const events: [string, Record<string, unknown>][] = [
  ['run', { run_id: 'r1', model: 'm', tools: 3, tool_tokens: 120 }],
  ['round', { round: 1 }],
  ['thought', { text: 'I look ' }],
  ['thought', { text: 'it up.' }],
  ['call', { id: 'c1', name: 'maru.search_docs', arguments: { query: 'x' }, repairs: ['quotes'], raw: "{'query': 'x'}" }],
  ['approval', { id: 'c1', name: 'maru.search_docs' }],
  ['observation', { id: 'c1', name: 'maru.search_docs', arguments: { query: 'x' }, result: 'found', is_error: false, ms: 4 }],
  ['usage', { total_tokens: 50 }],
  ['round', { round: 2 }],
  ['answer', { text: 'Done.', cut: false, usage: { total_tokens: 90 } }],
];

it('rounds come out of events', () => {
  const run = emptyRun('q', 'm');
  for (const [kind, data] of events.slice(0, 6)) onEvent(run, kind, data);
  expect(run.state).toBe('waiting');
  for (const [kind, data] of events.slice(6)) onEvent(run, kind, data);
  expect(run).toMatchObject({ id: 'r1', state: 'done', answer: 'Done.', tokens: 90 });
  expect(run.rounds[0]).toMatchObject({ text: 'I look it up.', tokens: 50, calls: [{ result: 'found', repairs: ['quotes'], waits: false }] });
});

it('a stream gives the same events in whatever pieces it comes', () => {
  const text = events.map(([kind, data]) => `event: ${kind}\ndata: ${JSON.stringify(data)}\n\n`).join(': still here\n\n');
  for (const size of [1, 7, text.length]) {
    const reader = new EventReader();
    const found = [];
    for (let at = 0; at < text.length; at += size) found.push(...reader.feed(text.slice(at, at + size)));
    expect(found.map((it) => [it.kind, it.data])).toEqual(events);
  }
});

it('a kept run reads like a live one', () => {
  const run = fromRecord({ id: 'r', state: 'done', cut: 'rounds', rounds: [{ text: 't', calls: [], usage: { total_tokens: 3 }, ms: 5 }] });
  expect(run).toMatchObject({ state: 'cut', rounds: [{ number: 1, tokens: 3, ms: 5 }] });
});

it('advice about the context is given where the tools leave no room for the answer', () => {
  const cut = (toolTokens: number, cut: string | null, error: string | null = null) => ({ ...fromRecord({ id: 'r', state: 'done', cut, error, rounds: [{ text: 't', calls: [], usage: { total_tokens: 4096 }, ms: 5 }] }), toolTokens });
  expect([cut(3900, 'length'), cut(300, 'length'), cut(3900, 'rounds'), cut(0, null, 'the request exceeds the available context size')].map(lacksContext)).toEqual([true, false, false, true]);
});
