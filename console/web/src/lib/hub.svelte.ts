/** What the hub last pushed. Pages show this and invent nothing. */
import { type ApiError, get } from './api';
import type { Call, Client, Role, Server, Session } from './types';

export const hub = $state({
  /** A snapshot has arrived. */
  ready: false,
  /** The stream is open. */
  live: false,
  servers: [] as Server[],
  clients: [] as Client[],
  tools: { count: 0, off: 0 },
  /** Counts changes of tools; pages that list them read again. */
  toolChanges: 0,
  runChanges: 0,
  lastRun: '',
  version: '',
  /** The hub was updated since this page was loaded. */
  stale: false,
  /** Why nothing is shown: the token is good for less than the console needs. */
  refused: '',
  session: null as Session | null,
  now: Date.now(),
});

const ranks: Record<Role, number> = { reader: 0, agent: 1, admin: 2 };

/** Whether whoever is signed in may do what needs this role. */
export function may(role: Role): boolean {
  const own = hub.session?.role;
  return !!own && ranks[own] >= ranks[role];
}

/** How many clients were seen in the last five minutes. */
export const connectedClients = () => hub.clients.filter((it) => hub.now - it.lastSeen < 300_000).length;

export async function readSession(): Promise<Session> {
  const session = await get<Session>('/api/session');
  hub.session = session;
  return session;
}

type Message = { kind: string; data: unknown; from?: 'leader' };
type CallListener = (call: Call) => void;
const callListeners = new Set<CallListener>();

/** Hears of every call; the returned function ends that. */
export function onCall(listener: CallListener): () => void {
  callListeners.add(listener);
  return () => callListeners.delete(listener);
}

let firstBuild = '';

function apply({ kind, data }: Message): void {
  switch (kind) {
    case 'snapshot': {
      const all = data as { servers: Server[]; clients: Client[]; tools: typeof hub.tools; build: string; version: string };
      hub.servers = all.servers;
      hub.clients = all.clients;
      hub.tools = all.tools;
      hub.version = all.version;
      firstBuild ||= all.build;
      hub.stale = all.build !== firstBuild;
      hub.toolChanges++;
      hub.runChanges++;
      hub.ready = true;
      hub.refused = '';
      break;
    }
    case 'server': {
      const server = data as Server & { removed?: boolean };
      const at = hub.servers.findIndex((it) => it.name === server.name);
      if (server.removed) hub.servers = hub.servers.filter((it) => it.name !== server.name);
      else if (at < 0) hub.servers.push(server);
      else hub.servers[at] = server;
      break;
    }
    case 'tool':
      hub.tools = data as typeof hub.tools;
      hub.toolChanges++;
      break;
    case 'client': {
      const client = data as Client;
      const others = hub.clients.filter((it) => it.client !== client.client || it.principal !== client.principal);
      hub.clients = [client, ...others];
      break;
    }
    case 'call':
      for (const listener of callListeners) listener(data as Call);
      break;
    case 'run':
      hub.lastRun = (data as { id?: string }).id ?? '';
      hub.runChanges++;
      break;
    case 'live':
      hub.live = data as boolean;
      break;
  }
}

const kinds = ['snapshot', 'server', 'tool', 'client', 'call', 'run', 'build'];

/**
 * A browser has six connections to one origin. One tab holds the stream and
 * passes everything on; without Web Locks every tab holds its own.
 */
export function connect(): () => void {
  const channel = 'BroadcastChannel' in window ? new BroadcastChannel('maru-events') : null;
  let stream: EventSource | undefined;
  let ended = false;
  let release = () => {};
  let retry: ReturnType<typeof setTimeout> | undefined;

  const tell = (message: Message) => {
    apply(message);
    channel?.postMessage(message);
  };
  const open = () => {
    if (ended) return;
    stream = new EventSource('/api/events');
    stream.onopen = () => tell({ kind: 'live', data: true });
    stream.onerror = () => {
      tell({ kind: 'live', data: false });
      // Closed for good: refused, or the hub was gone for long.
      if (stream?.readyState === EventSource.CLOSED) {
        clearTimeout(retry);
        retry = setTimeout(() => {
          void readSession().catch(() => undefined);
          void get('/api/stats?minutes=5').then(() => (hub.refused = ''), (error: ApiError) => (hub.refused = error.status === 403 ? error.message : ''));
          open();
        }, 1000);
      }
    };
    for (const kind of kinds) {
      stream.addEventListener(kind, (event) => tell({ kind, data: JSON.parse((event as MessageEvent<string>).data) }));
    }
  };
  const lead = () => new Promise<void>((done) => {
    release = done;
    open();
    if (channel) {
      channel.onmessage = (event: MessageEvent<Message>) => {
        if (event.data.kind !== 'hello' || !hub.ready) return;
        const { servers, clients, tools, version } = $state.snapshot(hub);
        channel.postMessage({ kind: 'snapshot', data: { servers, clients, tools, version, build: firstBuild } });
        channel.postMessage({ kind: 'live', data: hub.live });
      };
    }
  });
  if (channel && navigator.locks) {
    channel.onmessage = (event: MessageEvent<Message>) => apply(event.data);
    channel.postMessage({ kind: 'hello', data: null });
    const waiting = new AbortController();
    release = () => waiting.abort();
    navigator.locks.request('maru-events', { signal: waiting.signal }, lead).catch(() => undefined);
  } else {
    void lead();
  }
  const clock = setInterval(() => (hub.now = Date.now()), 1000);
  return () => {
    ended = true;
    stream?.close();
    clearTimeout(retry);
    clearInterval(clock);
    release();
    channel?.close();
    hub.ready = false;
    hub.live = false;
  };
}
