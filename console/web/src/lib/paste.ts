/** Understands what people paste to add a server. Pure. */
import type { ServerConfig } from './types';

export interface Draft {
  name: string;
  transportType: 'STDIO' | 'SSE' | 'HTTP';
  config: ServerConfig;
  /** Members whose value has to be filled in. */
  missing: string[];
}

export type Understood = { kind: 'nothing' } | { kind: 'wrong'; why: string } | { kind: 'servers'; from: 'json' | 'command' | 'url'; drafts: Draft[] };

type Entry = Record<string, unknown>;

export function understand(text: string): Understood {
  const trimmed = text.trim();
  if (!trimmed) return { kind: 'nothing' };
  if (/^["{[]/.test(trimmed)) return fromJson(trimmed);
  if (/^https?:\/\/\S+$/i.test(trimmed)) return { kind: 'servers', from: 'url', drafts: [atUrl(trimmed)] };
  return fromCommand(trimmed);
}

/** Whether a value of this name is to be hidden. */
export function isSecret(name: string): boolean {
  return /(key|token|secret|passw|auth|credential|cookie)/i.test(name) && !/(keyboard|tokens$|author$)/i.test(name);
}

/** A name that the hub takes. */
export function fitName(name: string): string {
  const fit = name.toLowerCase().replace(/[^a-z0-9_]+/g, '-').replace(/^[-_]+|-+$/g, '').slice(0, 63);
  return fit.replace(/-+$/, '');
}

// JSON

function fromJson(text: string): Understood {
  let value: unknown;
  try {
    value = parseLenientJson(text);
  } catch (error) {
    return { kind: 'wrong', why: (error as Error).message };
  }
  const drafts = entriesOf(value).map(([name, entry]) => fromEntry(name, entry)).filter((it) => it !== null);
  if (!drafts.length) return { kind: 'wrong', why: 'mcpServers' };
  return { kind: 'servers', from: 'json', drafts };
}

/** JSON with comments, trailing commas or without its outer braces, as READMEs have it. */
export function parseLenientJson(text: string): unknown {
  const plain = stripped(text);
  for (const candidate of [text, plain, `{${plain}}`]) {
    try {
      return JSON.parse(candidate);
    } catch {
      // The next one may be better.
    }
  }
  return JSON.parse(plain);
}

function stripped(text: string): string {
  const token = /"(?:[^"\\]|\\.)*"|\/\/[^\n]*|\/\*[\s\S]*?\*\//g;
  const bare = text.replace(token, (it) => (it.startsWith('"') ? it : ''));
  return bare.replace(/"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])/g, (it) => (it.startsWith('"') ? it : '')).replace(/,\s*$/, '');
}

function isEntry(value: unknown): value is Entry {
  const entry = value as Entry | null;
  return typeof entry === 'object' && entry !== null && ['command', 'url', 'serverUrl'].some((it) => it in entry);
}

function entriesOf(value: unknown): [string, Entry][] {
  if (Array.isArray(value)) return value.filter(isEntry).map((entry) => [String(entry.name ?? ''), entry]);
  if (isEntry(value)) return [[String(value.name ?? ''), value]];
  if (typeof value !== 'object' || value === null) return [];
  const all = value as Record<string, unknown>;
  const found = Object.entries(all).filter((pair): pair is [string, Entry] => isEntry(pair[1]));
  if (found.length) return found;
  for (const place of ['mcpServers', 'servers', 'context_servers', 'mcp']) {
    if (typeof all[place] === 'object') return entriesOf(all[place]);
  }
  return [];
}

/** The entries of a client's file that have these names, as `mcpServers` has them. */
export function entriesNamed(file: unknown, names: string[]): Record<string, unknown> {
  const pairs = Array.isArray(file) ? file.map(listed) : Object.entries(placeOf(file));
  return Object.fromEntries(pairs.filter(([name]) => names.includes(name)));
}

function listed({ name, autoConnect, ...entry }: Entry): [string, unknown] {
  return [String(name), autoConnect === false ? { ...entry, disabled: true } : entry];
}

/** The hub looks for servers in the same places, in the same order. */
function placeOf(file: unknown): object {
  const at = (value: unknown, name: string) => (value as Entry | null | undefined)?.[name];
  const mcp = at(file, 'mcp');
  const places = [at(file, 'mcpServers'), at(file, 'servers'), at(mcp, 'servers'), at(mcp, 'mcpServers'), at(file, 'context_servers')];
  const found = places.find((it) => it !== undefined);
  return typeof found === 'object' && found ? found : {};
}

function fromEntry(name: string, entry: Entry): Draft | null {
  const url = entry.url ?? entry.serverUrl;
  if (typeof url === 'string') {
    const headers = texts(entry.headers);
    const type = String(entry.type ?? entry.transport ?? '').toLowerCase();
    const draft = atUrl(url, name);
    if (type === 'sse') draft.transportType = 'SSE';
    else if (type) draft.transportType = 'HTTP';
    if (Object.keys(headers).length) draft.config.headers = headers;
    return noted(draft);
  }
  // Zed has the command as an object.
  const command = typeof entry.command === 'object' && entry.command ? (entry.command as Entry) : entry;
  const program = String(command.command ?? command.path ?? '');
  if (!program) return null;
  const args = Array.isArray(command.args) ? command.args.map(String) : [];
  const words = args.length || !/\s/.test(program) ? [program, ...args] : split(program);
  return program_(words, texts(command.env), name, typeof entry.cwd === 'string' ? entry.cwd : undefined);
}

function texts(value: unknown): Record<string, string> {
  if (typeof value !== 'object' || value === null) return {};
  return Object.fromEntries(Object.entries(value).map(([name, it]) => [name, String(it)]));
}

// Addresses

export function atUrl(url: string, name = ''): Draft {
  let guess = 'server';
  let path = '';
  try {
    const parsed = new URL(url);
    path = parsed.pathname;
    const host = parsed.hostname;
    const labels = host.split('.').filter((it) => !['mcp', 'api', 'www'].includes(it));
    const local = /^(localhost|127\.|\[|10\.|192\.168\.)/.test(host);
    guess = local ? `local${parsed.port ? `-${parsed.port}` : ''}` : (labels.length > 1 ? labels[labels.length - 2] : labels[0]) ?? host;
  } catch {
    // The hub says what is wrong with it.
  }
  const transportType = /\/sse\/?$/.test(path) ? 'SSE' : 'HTTP';
  return { name: fitName(name || guess), transportType, config: { url }, missing: [] };
}

// Command lines

/** Words of a command line, quotes and backslashes understood, nothing run. */
export function split(line: string): string[] {
  const words: string[] = [];
  let word = '';
  let has = false;
  let quote = '';
  for (let at = 0; at < line.length; at++) {
    const c = line[at];
    if (quote) {
      if (c === quote) quote = '';
      else if (c === '\\' && quote === '"' && /["\\$`]/.test(line[at + 1] ?? '')) word += line[++at];
      else word += c;
    } else if (c === '"' || c === "'") {
      quote = c;
      has = true;
    } else if (c === '\\') {
      const next = line[++at] ?? '';
      if (next !== '\n') word += next;
    } else if (/\s/.test(c)) {
      if (word || has) words.push(word);
      word = '';
      has = false;
    } else {
      word += c;
    }
  }
  if (word || has) words.push(word);
  return words;
}

const assignment = /^([A-Za-z_][A-Za-z0-9_]*)=(.*)$/s;

function fromCommand(text: string): Understood {
  let words = split(text.replace(/^\$\s+/, ''));
  const env: Record<string, string> = {};
  if (words[0] === 'env' || words[0] === 'export') words = words.slice(1);
  for (let match = words[0]?.match(assignment); match; match = words[0]?.match(assignment)) {
    env[match[1]] = match[2];
    words = words.slice(1);
  }
  if (!words.length) return { kind: 'wrong', why: 'command' };
  const drafts = [added(words, env) ?? program_(words, env)];
  return { kind: 'servers', from: 'command', drafts };
}

/** `claude mcp add …` and its relatives. */
function added(words: string[], env: Record<string, string>): Draft | null {
  const at = words.findIndex((it) => it === 'add' || it === 'add-json');
  const isAdd = at > 0 && at < 4 && (words[at - 1] === 'mcp' || words[at - 1] === 'servers');
  if (!isAdd) return null;
  let rest = words.slice(at + 1);
  const plain: string[] = [];
  const headers: Record<string, string> = {};
  let type = '';
  while (rest.length) {
    const [word, next] = rest;
    const [flag, inline] = word.startsWith('--') && word.includes('=') ? [word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1)] : [word, undefined];
    const value = inline ?? next ?? '';
    const used = inline === undefined ? 2 : 1;
    if (word === '--') {
      plain.push(...rest.slice(1));
      break;
    } else if (flag === '-e' || flag === '--env') {
      const match = value.match(assignment);
      if (match) env[match[1]] = match[2];
      rest = rest.slice(used);
    } else if (flag === '-H' || flag === '--header') {
      const colon = value.indexOf(':');
      if (colon > 0) headers[value.slice(0, colon).trim()] = value.slice(colon + 1).trim();
      rest = rest.slice(used);
    } else if (flag === '-t' || flag === '--transport') {
      type = value.toLowerCase();
      rest = rest.slice(used);
    } else if (flag === '-s' || flag === '--scope') {
      rest = rest.slice(used);
    } else if (word.startsWith('-') && plain.length < 2) {
      rest = rest.slice(1);
    } else {
      plain.push(word);
      rest = rest.slice(1);
    }
  }
  const [name, target, ...args] = plain;
  if (!target) return null;
  if (target.startsWith('{')) {
    const found = fromJson(target);
    return found.kind === 'servers' ? { ...found.drafts[0], name: fitName(name) } : null;
  }
  if (/^https?:\/\//i.test(target)) {
    const draft = atUrl(target, name);
    if (type === 'sse') draft.transportType = 'SSE';
    if (type === 'http') draft.transportType = 'HTTP';
    if (Object.keys(headers).length) draft.config.headers = headers;
    return noted(draft);
  }
  return program_([target, ...args], env, name);
}

function program_(words: string[], env: Record<string, string>, name = '', cwd?: string): Draft {
  const [command, ...args] = words;
  const config: ServerConfig = { command, args };
  if (Object.keys(env).length) config.env = env;
  if (cwd) config.cwd = cwd;
  return noted({ name: fitName(name || guessName(words)), transportType: 'STDIO', config, missing: [] });
}

const runners = /^(npx|bunx|uvx|pipx|pnpx|pnpm|yarn|node|deno|python3?|uv|docker|podman|bun)$/;

/** `npx -y @scope/server-files /tmp` is called `files`. */
function guessName(words: string[]): string {
  const base = (word: string) => word.replace(/\\/g, '/').split('/').pop() ?? word;
  const first = base(words[0]);
  const others = words.slice(1).filter((it) => !it.startsWith('-') && !['run', 'exec', 'dlx', 'x'].includes(it));
  const isContainer = first === 'docker' || first === 'podman';
  const telling = isContainer ? others.findLast((it) => /[/:]/.test(it)) ?? others.at(-1) : others[0];
  const word = runners.test(first) && telling ? telling : first;
  const plain = base(word.replace(/(?<=.)@[^@/]*$/, '').replace(/:[^:/]*$/, '')).replace(/\.(m?js|ts|py|exe)$/, '');
  return plain.replace(/^(mcp-server-|server-mcp-|server-|mcp-)/, '').replace(/(-mcp-server|-mcp|-server)$/, '') || 'server';
}

/** Notes what still has to be filled in: `${…}`, `<…>`, `YOUR_…`. */
function noted(draft: Draft): Draft {
  const groups = { env: draft.config.env, headers: draft.config.headers };
  for (const [group, members] of Object.entries(groups)) {
    for (const [name, value] of Object.entries(members ?? {})) {
      if (/\$\{[^}]*\}|<[^>]+>|^YOUR[_-]|^(xxx+|\.\.\.|…)$/i.test(value.trim()) || !value.trim()) draft.missing.push(`${group}.${name}`);
    }
  }
  return draft;
}
