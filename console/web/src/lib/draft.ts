/** A tool in the builder: what is wrong with it, and how the hub takes it. Pure. */
import { undeclared } from './expression';
import { templates, reads, usedParams } from './sql';
import type { CustomParam, CustomTool } from './types';

export interface DraftParam {
  id: number;
  name: string;
  type: 'STRING' | 'NUMBER' | 'INTEGER' | 'BOOLEAN' | 'ENUM' | 'DATE' | 'TIMESTAMP' | 'LIST' | 'IDENTIFIER' | 'EMBEDDING' | 'OBJECT';
  required: boolean;
  description: string;
  /** As it is typed. */
  initial: string;
  choices: string;
}

export interface ToolDraft {
  name: string;
  agent: string;
  user: string;
  mode: 'SQL' | 'PYTHON';
  source: string;
  sql: string;
  python: string;
  format: string;
  /** As they are typed; empty is as much as the source allows. */
  maxRows: string;
  timeout: string;
  paged: boolean;
  params: DraftParam[];
}

/** Names of tools that the hub takes. */
export const NAME = /^(?!.*__)[A-Za-z][A-Za-z0-9_-]{0,63}$/;
/** Names of parameters that the hub takes: letters of any script, 64 bytes. */
const PARAM = /^\p{L}[\p{L}\p{N}_]*$/u;
const MAX_PARAM_BYTES = 64;
const reserved = new Set(['and', 'or', 'not', 'in', 'is', 'if', 'else', 'for', 'lambda', 'None', 'True', 'False', 'import', 'def', 'class', 'return', 'result']);

export function emptyDraft(): ToolDraft {
  return { name: '', agent: '', user: '', mode: 'SQL', source: '', sql: '', python: '', format: 'auto', maxRows: '', timeout: '', paged: false, params: [] };
}

let lastId = 0;
export function emptyParam(name = ''): DraftParam {
  return { id: ++lastId, name, type: 'STRING', required: true, description: '', initial: '', choices: '' };
}

export const code = (draft: ToolDraft) => (draft.mode === 'SQL' ? draft.sql : draft.python);

/** What is wrong with a parameter, as the key of a text. */
export function paramFlaw(draft: ToolDraft, param: DraftParam): '' | 'p.bad.name' | 'p.bad.twice' | 'p.bad.reserved' | 'p.bad.choices' | 'p.bad.default' {
  if (!PARAM.test(param.name) || new TextEncoder().encode(param.name).length > MAX_PARAM_BYTES) return 'p.bad.name';
  if (draft.params.some((it) => it.id !== param.id && it.name === param.name)) return 'p.bad.twice';
  if (draft.mode === 'PYTHON' && reserved.has(param.name)) return 'p.bad.reserved';
  if (hasChoices(param) && !choices(param).length) return 'p.bad.choices';
  if (initial(param) === BAD) return 'p.bad.default';
  return '';
}

const BAD = Symbol('bad');

/** Whether its values are listed. */
export const hasChoices = (param: DraftParam) => param.type === 'ENUM' || param.type === 'IDENTIFIER';

export function choices(param: DraftParam): string[] {
  return param.choices.split(',').map((it) => it.trim()).filter(Boolean);
}

function initial(param: DraftParam): unknown {
  const text = param.initial.trim();
  if (param.required || !text) return undefined;
  switch (param.type) {
    case 'NUMBER':
    case 'INTEGER': {
      const value = Number(text);
      return Number.isFinite(value) && (param.type === 'NUMBER' || Number.isInteger(value)) ? value : BAD;
    }
    case 'BOOLEAN':
      return text === 'true' ? true : text === 'false' ? false : BAD;
    case 'ENUM':
    case 'IDENTIFIER':
      return choices(param).includes(text) ? text : BAD;
    case 'LIST':
    case 'OBJECT':
      try {
        return JSON.parse(text);
      } catch {
        return BAD;
      }
    default:
      return param.initial;
  }
}

/** Names exactly the logic that a run proves; descriptions are no part of it. */
export function logicMark(draft: ToolDraft): string {
  const params = draft.params.map(({ name, type, required, initial, choices }) => [name, type, required, initial, choices]);
  return JSON.stringify([draft.mode, code(draft), draft.mode === 'SQL' ? draft.source : '', draft.format, draft.maxRows, draft.timeout, draft.paged, params]);
}

/** Which of the first three steps are right as they are. */
export function steps(draft: ToolDraft, nameFree: boolean): [boolean, boolean, boolean] {
  const text = code(draft);
  const known = new Set(draft.params.map((it) => it.name));
  const right = draft.mode === 'SQL'
    ? usedParams(text).every((it) => known.has(it.name)) && !templates(text).length && reads(text)
    : !undeclared(text, known).length;
  return [
    NAME.test(draft.name) && nameFree && draft.agent.trim().length > 0,
    draft.params.every((it) => !paramFlaw(draft, it)),
    text.trim().length > 0 && right,
  ];
}

/** What is no number is left to the hub to refuse. */
const limit = (typed: string): number | null => (typed.trim() ? Number(typed) || 0 : null);

/** As the hub takes it. */
export function toTool(draft: ToolDraft, active: boolean): CustomTool {
  return {
    name: draft.name,
    description_agent: draft.agent,
    description_user: draft.user,
    tool_type: draft.mode,
    source: draft.mode === 'SQL' ? draft.source || null : null,
    definition: code(draft),
    result_format: draft.format,
    paged: draft.mode === 'SQL' && draft.paged,
    max_rows: draft.mode === 'SQL' ? limit(draft.maxRows) : null,
    timeout_ms: draft.mode === 'SQL' ? limit(draft.timeout) : null,
    is_active: active,
    params: draft.params.map((it): CustomParam => {
      const given = initial(it);
      return {
        param_name: it.name,
        param_type: it.type,
        is_required: it.required,
        description: it.description,
        ...(given === undefined || given === BAD ? {} : { default: given }),
        ...(hasChoices(it) ? { enum: choices(it) } : {}),
      };
    }),
  };
}

export function fromTool(tool: CustomTool): ToolDraft {
  const isSql = tool.tool_type !== 'PYTHON';
  return {
    name: tool.name,
    agent: tool.description_agent ?? '',
    user: tool.description_user ?? '',
    mode: isSql ? 'SQL' : 'PYTHON',
    source: tool.source ?? '',
    sql: isSql ? tool.definition ?? '' : '',
    python: isSql ? '' : tool.definition ?? '',
    format: tool.result_format ?? 'auto',
    maxRows: String(tool.max_rows ?? ''),
    timeout: String(tool.timeout_ms ?? ''),
    paged: tool.paged ?? false,
    params: (tool.params ?? []).map((it) => ({
      ...emptyParam(it.param_name),
      type: (it.enum?.length && it.param_type.toUpperCase() !== 'IDENTIFIER' ? 'ENUM' : it.param_type.toUpperCase()) as DraftParam['type'],
      required: it.is_required ?? true,
      description: it.description ?? '',
      initial: it.default === undefined || it.default === null ? '' : typeof it.default === 'object' ? JSON.stringify(it.default) : String(it.default),
      choices: (it.enum ?? []).join(', '),
    })),
  };
}

/** The schema that a model will see. */
export function schemaOf(draft: ToolDraft): object {
  const types = { STRING: 'string', NUMBER: 'number', INTEGER: 'integer', BOOLEAN: 'boolean', ENUM: 'string', DATE: 'string', TIMESTAMP: 'string', IDENTIFIER: 'string', EMBEDDING: 'string', LIST: 'array', OBJECT: 'object' };
  const properties = Object.fromEntries(draft.params.map((it) => {
    const given = initial(it);
    return [it.name, {
      type: types[it.type],
      ...(hasChoices(it) ? { enum: choices(it) } : {}),
      ...(it.type === 'DATE' ? { format: 'date' } : it.type === 'TIMESTAMP' ? { format: 'date-time' } : {}),
      ...(it.description ? { description: it.description } : {}),
      ...(given === undefined || given === BAD ? {} : { default: given }),
    }];
  }));
  return { type: 'object', properties, required: draft.params.filter((it) => it.required).map((it) => it.name) };
}

/** What is typed for a test, as the value of its kind; `undefined` leaves it out. */
export function argument(param: DraftParam, typed: string | undefined): unknown {
  if (typed === undefined || (typed === '' && (!param.required || param.type !== 'STRING'))) return undefined;
  switch (param.type) {
    case 'NUMBER':
    case 'INTEGER': {
      const value = Number(typed);
      return Number.isFinite(value) && typed.trim() ? value : typed;
    }
    case 'BOOLEAN':
      return typed === 'true';
    case 'LIST':
    case 'OBJECT':
      try {
        return JSON.parse(typed);
      } catch {
        return typed;
      }
    default:
      return typed;
  }
}
