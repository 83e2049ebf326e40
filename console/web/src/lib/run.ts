/** A run of the agent, as its events tell it. Pure. */

export interface RunCall {
  id: string;
  name: string;
  arguments: unknown;
  dialect?: string;
  repairs?: string[];
  raw?: string;
  result?: string;
  is_error?: boolean;
  /** How it ended: a person refused it, it could not be called, or the tool failed. */
  outcome?: 'ok' | 'failed' | 'refused' | 'rejected' | 'timed_out';
  ms?: number;
  waits?: boolean;
}

export interface Round {
  number: number;
  text: string;
  reasoning: string;
  calls: RunCall[];
  broken: string[];
  tokens: number | null;
  ms: number | null;
  started: number;
}

export type RunState = 'running' | 'waiting' | 'done' | 'cut' | 'failed' | 'stopped';

export interface Run {
  id: string;
  model: string;
  question: string;
  state: RunState;
  tools: number | null;
  toolTokens: number | null;
  rounds: Round[];
  answer: string | null;
  /** Why the run ended before the model was done, as the hub names it. */
  cut: string | null;
  error: string | null;
  tokens: number | null;
}

export function emptyRun(question: string, model: string): Run {
  return { id: '', model, question, state: 'running', tools: null, toolTokens: null, rounds: [], answer: null, cut: null, error: null, tokens: null };
}

type Data = Record<string, unknown>;

function round(number: number): Round {
  return { number, text: '', reasoning: '', calls: [], broken: [], tokens: null, ms: null, started: Date.now() };
}

/** What the run is after one more event; changes `run` in place. */
export function onEvent(run: Run, kind: string, data: Data): void {
  const last = () => {
    if (!run.rounds.length) run.rounds.push(round(1));
    return run.rounds[run.rounds.length - 1];
  };
  switch (kind) {
    case 'run':
      run.id = String(data.run_id ?? '');
      run.model = String(data.model ?? run.model);
      run.tools = (data.tools as number) ?? null;
      run.toolTokens = (data.tool_tokens as number) ?? null;
      break;
    case 'round': {
      const before = run.rounds.at(-1);
      if (before && before.ms === null) before.ms = Date.now() - before.started;
      run.rounds.push(round(Number(data.round ?? run.rounds.length + 1)));
      break;
    }
    case 'thought':
      last().text += String(data.text ?? '');
      break;
    case 'reasoning':
      if (data.all_text) {
        last().reasoning = last().text;
        last().text = '';
      } else last().reasoning += String(data.text ?? '');
      break;
    case 'call':
      put(last(), data as unknown as RunCall);
      break;
    case 'rejected':
      last().broken.push([data.reason, data.text].filter(Boolean).join('\n\n'));
      break;
    case 'approval': {
      const call = last().calls.find((it) => it.id === data.id);
      if (call) call.waits = true;
      run.state = 'waiting';
      break;
    }
    case 'observation':
      put(last(), { ...(data as unknown as RunCall), waits: false });
      if (!last().calls.some((it) => it.waits)) run.state = 'running';
      break;
    case 'usage': {
      const total = Number(data.total_tokens ?? Number(data.prompt_tokens ?? 0) + Number(data.completion_tokens ?? 0));
      last().tokens = (last().tokens ?? 0) + total;
      break;
    }
    case 'answer': {
      const open = run.rounds.at(-1);
      if (open && open.ms === null) open.ms = Date.now() - open.started;
      run.answer = String(data.text ?? '');
      run.state = data.cut ? 'cut' : 'done';
      run.cut = data.cut ? String(data.finish_reason ?? '') : null;
      run.id ||= String(data.run_id ?? '');
      run.tokens = ((data.usage as Data | undefined)?.total_tokens as number) ?? null;
      break;
    }
    case 'failed':
      run.state = 'failed';
      run.error = String(data.message ?? '');
      break;
    case 'error':
      run.state = 'failed';
      run.error = String((data.error as Data | undefined)?.message ?? '');
      break;
  }
}

function put(into: Round, call: RunCall): void {
  const at = into.calls.findIndex((it) => it.id === call.id);
  if (at < 0) into.calls.push(call);
  else into.calls[at] = { ...into.calls[at], ...call };
}

/** A run as `/api/runs/{id}` keeps it. */
export function fromRecord(record: Data): Run {
  const state = String(record.state) as RunState;
  return {
    id: String(record.id),
    model: String(record.model ?? ''),
    question: String(record.question ?? ''),
    state: state === 'done' && record.cut ? 'cut' : state,
    tools: (record.tools as number) ?? null,
    toolTokens: (record.tool_tokens as number) ?? null,
    rounds: ((record.rounds as Data[]) ?? []).map((it, at) => ({
      ...round(at + 1),
      text: String(it.text ?? ''),
      reasoning: String(it.reasoning ?? ''),
      broken: (it.broken as string[]) ?? [],
      calls: (it.calls as RunCall[]) ?? [],
      tokens: ((it.usage as Data | null)?.total_tokens as number) ?? null,
      ms: (it.ms as number) ?? null,
    })),
    answer: (record.answer as string) ?? null,
    cut: (record.cut as string) ?? null,
    error: (record.error as string) ?? null,
    tokens: ((record.usage as Data | null)?.total_tokens as number) ?? null,
  };
}

/** Whether a run failed, or was cut, because the model reads too few tokens at once: one whose
 * answer was cut while the descriptions of tools took most of what it read lacks room for it. */
export function lacksContext(run: Run): boolean {
  const lastTokens = run.rounds.at(-1)?.tokens ?? run.tokens ?? 0;
  const isFull = run.cut === 'length' && lastTokens > 0 && (run.toolTokens ?? 0) * 2 > lastTokens;
  return isFull || /context|too many tokens|exceeds.*tokens|n_ctx|num_ctx/i.test(run.error ?? '');
}

/** Events of a stream, whatever pieces it comes in. */
export class EventReader {
  private rest = '';
  feed(chunk: string): { kind: string; data: Data }[] {
    this.rest += chunk;
    const found: { kind: string; data: Data }[] = [];
    for (let end = this.rest.indexOf('\n\n'); end >= 0; end = this.rest.indexOf('\n\n')) {
      const block = this.rest.slice(0, end);
      this.rest = this.rest.slice(end + 2);
      const kind = block.match(/^event: ?(.*)$/m)?.[1] ?? 'message';
      const data = [...block.matchAll(/^data: ?(.*)$/gm)].map((it) => it[1]).join('\n');
      if (!data) continue;
      try {
        found.push({ kind, data: JSON.parse(data) as Data });
      } catch {
        // Not for us.
      }
    }
    return found;
  }
}
