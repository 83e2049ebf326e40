/** A call of a tool that tells what it does while it runs, and may ask. */
import { ApiError } from './api';
import { EventReader } from './run';
import type { ToolResult } from './types';

export interface Done {
  ok: boolean;
  milliseconds?: number;
  result?: ToolResult;
  error?: { code: string; message: string };
}

export interface Progress {
  progress: number;
  total?: number;
  message?: string;
}

export interface LogLine {
  level: string;
  text: string;
}

/** What a tool asks the person: a form, a page to open, or a text of a model. */
export interface Question {
  id: string;
  requests: Record<string, { method: string; params: Record<string, unknown> }>;
}

export interface Listener {
  progress: (it: Progress) => void;
  log: (it: LogLine) => void;
  ask: (it: Question) => void;
}

export async function callTool(path: string, args: unknown, listener: Listener, signal: AbortSignal): Promise<Done> {
  let response: Response;
  try {
    response = await fetch(path, { method: 'POST', signal, headers: { 'content-type': 'application/json', accept: 'text/event-stream', 'x-maru-console': '1' }, body: JSON.stringify({ arguments: args }) });
  } catch (error) {
    if ((error as Error).name === 'AbortError') throw error;
    throw new ApiError(0, 'the hub does not answer');
  }
  if (!response.headers.get('content-type')?.startsWith('text/event-stream') || !response.body) {
    const answer = (await response.json().catch(() => ({}))) as { error?: string; field?: string };
    throw new ApiError(response.status, answer.error ?? `${response.status} ${response.statusText}`, answer.field);
  }
  const events = new EventReader();
  const decoder = new TextDecoder();
  const chunks = response.body.getReader();
  let done: Done | undefined;
  for (let read = await chunks.read(); !read.done; read = await chunks.read()) {
    for (const { kind, data } of events.feed(decoder.decode(read.value, { stream: true }))) {
      if (kind === 'result') done = data as unknown as Done;
      else if (kind === 'input') listener.ask(data as unknown as Question);
      else if (kind === 'message') tell(data, listener);
    }
  }
  if (!done) throw new ApiError(0, 'the call broke off');
  return done;
}

function tell(message: Record<string, unknown>, listener: Listener): void {
  const params = (message.params ?? {}) as Record<string, unknown>;
  if (message.method === 'notifications/progress') listener.progress(params as unknown as Progress);
  else if (message.method === 'notifications/message' && params.logger !== 'maru.tool') listener.log({ level: String(params.level ?? 'info'), text: typeof params.data === 'string' ? params.data : JSON.stringify(params.data) });
}
