/** A scripted model: shows how rounds go, offline, with real calls of the hub's own tools. */
import { at, post } from './api';
import { t, type Key } from './i18n.svelte';
import type { Tool, ToolResult } from './types';

export const DEMO = 'scripted-demo';

type Emit = (kind: string, data: Record<string, unknown>) => void;
type Scene = { thought: Key; tool: string; arguments: Record<string, unknown>; raw?: string; repairs?: Key[] };

const scenes: Scene[] = [
  { thought: 'demo.rule', tool: 'search_docs', arguments: { query: '연차' } },
  { thought: 'demo.left', tool: 'calculate_vacation_days', arguments: { employee_id: 'EMP001', year: 2026 }, raw: "{'employee_id': 'EMP001', 'year': 2026,}", repairs: ['demo.quotes', 'demo.comma'] },
];

const pause = (time: number, signal: AbortSignal) => new Promise<void>((resolve, reject) => {
  const timer = setTimeout(resolve, time);
  signal.addEventListener('abort', () => {
    clearTimeout(timer);
    reject(new DOMException('stopped', 'AbortError'));
  }, { once: true });
});

export async function play(tools: Tool[], rounds: number, approve: ((id: string) => Promise<boolean>) | null, emit: Emit, signal: AbortSignal): Promise<void> {
  const usable = scenes.filter((scene) => tools.some((it) => it.name === scene.tool && it.enabled));
  emit('run', { run_id: '', model: DEMO, tools: tools.length, tool_tokens: tools.length * 45 });
  let found = '';
  for (const [n, scene] of usable.entries()) {
    if (n >= rounds) {
      emit('answer', { text: found, cut: true, finish_reason: 'max_iterations', usage: { total_tokens: n * 310 } });
      return;
    }
    emit('round', { round: n + 1 });
    await say(t(scene.thought), emit, signal);
    const id = `demo-${n}`;
    const call = { id, name: `maru.${scene.tool}`, arguments: scene.arguments, dialect: 'scripted', repairs: (scene.repairs ?? []).map((it) => t(it)), raw: scene.raw ?? JSON.stringify(scene.arguments) };
    emit('call', call);
    if (approve) {
      emit('approval', { id, name: call.name });
      if (!(await approve(id))) {
        emit('observation', { ...call, result: t('demo.refused'), is_error: true, outcome: 'refused', ms: 0 });
        continue;
      }
    }
    await pause(350, signal);
    const began = performance.now();
    const done = await post<{ ok: boolean; result?: ToolResult; error?: { message: string } }>(at`/api/tools/${scene.tool}/call`, { arguments: scene.arguments }, signal);
    const text = done.result?.content?.map((it) => it.text ?? '').join('\n') ?? done.error?.message ?? '';
    found = text;
    emit('observation', { ...call, result: text, is_error: !done.ok || done.result?.isError === true, ms: Math.round(performance.now() - began) });
    emit('usage', { total_tokens: 310 });
  }
  emit('round', { round: usable.length + 1 });
  const answer = usable.length ? t('demo.answer', { n: found.match(/"remaining":\s*([\d.]+)/)?.[1] ?? '?' }) : t('demo.none');
  await say(answer, emit, signal);
  emit('answer', { text: answer, cut: false, usage: { total_tokens: 310 * (usable.length + 1) } });
}

async function say(text: string, emit: Emit, signal: AbortSignal): Promise<void> {
  for (const word of text.split(/(?<= )/)) {
    await pause(22, signal);
    emit('thought', { text: word });
  }
}
