/** What the hub says, as it says it. */

export type Role = 'reader' | 'agent' | 'admin';

export interface Session {
  name: string | null;
  role: Role | null;
  version: string;
  build: string;
  /** Whether people can sign in at the company's issuer. */
  issuer?: boolean;
  /** Whether other hubs may share the store. */
  shared?: boolean;
  /** How many tools a run of the agent offers at once. */
  agent?: { maxTools: number; maxToolTokens: number };
}

export type ServerStatus = 'PENDING' | 'CONNECTING' | 'CONNECTED' | 'DISCONNECTED' | 'FAILED' | 'NEEDS_SIGN_IN' | 'DISABLED';

export interface Figures {
  calls: number;
  errors: number;
  p50: number | null;
  p95: number | null;
}

export interface Server {
  id: string;
  name: string;
  description: string | null;
  transportType: 'STDIO' | 'SSE' | 'HTTP';
  version: string | null;
  autoConnect: boolean;
  enabled: boolean;
  origin: 'file' | 'api' | 'console' | 'import';
  trust: 'pin' | 'follow';
  requiredProtocolVersion: string | null;
  status: ServerStatus;
  /** Attempts to connect it again since it was lost. */
  attempts: number;
  nextAttemptAt: number | null;
  toolCount: number;
  createdAt: number;
  updatedAt: number;
  cause?: string;
  /** What a person should know of the program that it starts. */
  warnings?: string[];
  /** While a program runs for it. */
  program?: Program;
  differsFromFile?: boolean;
  target: string;
  changedAt: number;
  protocolVersion: string | null;
  serverInfo: { name?: string; version?: string; title?: string } | null;
  withheld: number;
  attempt?: number;
  maxAttempts?: number;
  stats: (Figures & { perMinute: number[] }) | null;
}

/** What the program of a server uses, and may use. */
export interface Program {
  memoryBytes: number | null;
  /** Of one core. */
  cpuPercent: number | null;
  processes: number | null;
  limits: {
    memoryBytes: number | null;
    cpuPercent: number | null;
    processes: number | null;
    enforcedBy: 'cgroup' | 'hub';
  };
}

export interface ServerDetail extends Omit<Server, 'withheld'> {
  /** Its state at each hub, if there may be several. */
  hubs?: { hub: string; status: ServerStatus | null; cause: string | null; runsProgram: boolean }[];
  config: ServerConfig;
  tools: string[];
  withheld: { name: string; why: string; differences?: string[] | Record<string, unknown>[] | null }[];
}

export interface ServerConfig {
  command?: string;
  args?: string[];
  env?: Record<string, string>;
  cwd?: string;
  /** Which of the hubs that share a store run the program. */
  run?: 'each' | 'single';
  url?: string;
  headers?: Record<string, string>;
  auth?: Record<string, unknown>;
}

export interface LogEntry {
  time: number;
  kind: 'stderr' | 'event' | 'sent' | 'received';
  text: string;
  bytes: number;
}

export interface Trial {
  ok: boolean;
  cause: string | null;
  tools: string[];
  protocolVersion: string | null;
  serverInfo: { name?: string; version?: string } | null;
  log: LogEntry[];
}

export interface Annotations {
  readOnlyHint?: boolean;
  destructiveHint?: boolean;
  idempotentHint?: boolean;
  openWorldHint?: boolean;
}

export interface Tool {
  name: string;
  server: string;
  key: string;
  title: string | null;
  description: string;
  parameters: number;
  required: number;
  annotations: Annotations | null;
  enabled: boolean;
  calls: number;
}

export interface Schema {
  type?: string | string[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  default?: unknown;
  title?: string;
  description?: string;
  format?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  additionalProperties?: boolean | Schema;
}

export interface ToolDetail extends Tool {
  inputSchema: Schema | null;
  outputSchema: Schema | null;
}

export interface Content {
  type: string;
  text?: string;
  data?: string;
  mimeType?: string;
  uri?: string;
  name?: string;
  resource?: { uri: string; text?: string; blob?: string; mimeType?: string };
}

export interface ToolResult {
  content?: Content[];
  structuredContent?: unknown;
  isError?: boolean;
}

export type Outcome = 'ok' | 'failed' | 'refused' | 'timed_out' | 'cancelled';

export interface Call {
  /** Hubs number their calls by themselves; see `callKey`. */
  id: number;
  /** The hub that made it, if there may be several. */
  hub: string | null;
  time: number;
  tool: string;
  server: string;
  principal: string;
  client: string | null;
  outcome: Outcome;
  /** Why it failed. */
  error: string | null;
  milliseconds: number;
  upstreamMilliseconds: number;
  argumentBytes: number;
  resultBytes: number;
}

/** Identifies a call among those of all hubs. */
export const callKey = (call: Call): string => (call.hub ? `${call.id}@${call.hub}` : String(call.id));

export interface CallDetail extends Call {
  arguments: string;
  /** Absent when the call is no longer in memory. */
  result: string | null;
  cut: { arguments: boolean; result: boolean };
}

/** Calls over a range, and the time that they took together. */
export interface UsageFigures extends Figures {
  totalMilliseconds: number;
}

export interface Usage {
  from: number;
  to: number;
  spanMinutes: number;
  kept: boolean;
  /** When the first counted call was, if earlier ones match, too. */
  firstCounted: number | null;
  total: UsageFigures;
  slots: (UsageFigures & { at: number })[];
  tools: (UsageFigures & { name: string; server: string })[];
  servers: (UsageFigures & { name: string; server: string })[];
  callers: (UsageFigures & { name: string; server: string })[];
}

export interface Client {
  client: string;
  principal: string;
  protocolVersion: string;
  firstSeen: number;
  lastSeen: number;
  tools: number | null;
}

export interface Minutes {
  calls: number[];
  errors: number[];
  p50: (number | null)[];
  p95: (number | null)[];
}

export interface Series extends Figures {
  name: string;
  server: string;
  total: number;
  minutes: Minutes;
}

export interface Stats extends Figures {
  from: number;
  minutes: Minutes;
  servers: Series[];
  tools: Series[];
}

export interface Source {
  name: string;
  kind?: 'postgresql' | 'sqlite';
  origin?: 'settings' | 'console' | 'sample';
  /** False while it is switched off. */
  enabled?: boolean;
  /** Why it cannot be used now. */
  fault?: string | null;
  maxRows: number;
  maxBytes: number;
  timeoutMs: number;
}

export interface Table {
  schema: string;
  name: string;
  kind: string;
  comment: string | null;
  estimated_rows: number | null;
}

export interface Column {
  name: string;
  type: string;
  nullable: boolean;
  comment: string | null;
  primary_key: boolean;
  references: string[];
}

export interface Toolset {
  name: string;
  description?: string | null;
  instructions?: string | null;
  include: string[];
  exclude?: string[];
  favorites?: string[];
  tools?: 'list' | 'search' | 'auto' | null;
  calls_per_minute?: number | null;
  calls_per_day?: number | null;
  toolCount: number;
  estimatedTokens: number;
  endpoint: string;
  from: 'settings' | 'api';
  toolNames?: string[];
}

export interface OverrideChange {
  name?: string;
  title?: string;
  description?: string;
  parameters?: Record<string, { description?: string; default?: unknown; fixed?: unknown }>;
  annotations?: Record<string, boolean>;
  tags?: string[];
}

/** A tool as its server describes it and as clients see it. */
export interface Overridden {
  name: string;
  override: OverrideChange | null;
  original: { title?: string; description?: string; inputSchema?: { properties?: Record<string, unknown> } };
  differences: { path: string; original: unknown; shown: unknown }[];
  refusedName: string | null;
}

/** What a registry of servers found; `entry` is one of `mcpServers`. */
export interface Registry {
  isConfigured: boolean;
  servers: { name: string; localName: string; title: string | null; description: string; version: string; installations: { kind: string; entry: object }[] }[];
}

export interface CustomParam {
  param_name: string;
  param_type: string;
  is_required: boolean;
  description: string;
  default?: unknown;
  enum?: unknown[];
}

export interface CustomTool {
  name: string;
  description_agent: string;
  description_user: string;
  tool_type: 'SQL' | 'PYTHON';
  source: string | null;
  definition: string;
  result_format?: string;
  paged?: boolean;
  max_rows?: number | null;
  timeout_ms?: number | null;
  is_active: boolean;
  params: CustomParam[];
  version?: number;
  upd_dt?: string;
  created_by?: string;
  fault?: string | null;
  /** Kept beside the published version; clients do not see it. */
  draft?: { tool: CustomTool; saved_by: string; saved_dt: string } | null;
  change?: 'created' | 'changed' | 'switched' | 'unchanged';
}
