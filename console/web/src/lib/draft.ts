/** A tool while it is being made: what is wrong with it, and how the hub wants it. Pure. */
import { templates, reads, usedParams } from './sql';
import type { CustomParam, CustomTool } from './types';

export interface DraftParam {
  id: number;
  name: string;
  type: 'STRING' | 'NUMBER' | 'INTEGER' | 'BOOLEAN' | 'ENUM' | 'LIST' | 'OBJECT';
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
  params: DraftParam[];
}

export const NAME = /^[a-z][a-z0-9_]{0,63}$/;
const PARAM = /^[A-Za-z_][A-Za-z0-9_]{0,63}$/;
const reserved = new Set(['and', 'or', 'not', 'in', 'is', 'if', 'else', 'for', 'lambda', 'None', 'True', 'False', 'import', 'def', 'class', 'return', 'result']);

export function emptyDraft(): ToolDraft {
  return { name: '', agent: '', user: '', mode: 'SQL', source: '', sql: '', python: '', format: 'auto', params: [] };
}

let lastId = 0;
export function emptyParam(name = ''): DraftParam {
  return { id: ++lastId, name, type: 'STRING', required: true, description: '', initial: '', choices: '' };
}

export const code = (draft: ToolDraft) => (draft.mode === 'SQL' ? draft.sql : draft.python);

/** What is wrong with a parameter, as the key of a text. */
export function paramFlaw(draft: ToolDraft, param: DraftParam): '' | 'p.bad.name' | 'p.bad.twice' | 'p.bad.reserved' | 'p.bad.choices' | 'p.bad.default' {
  if (!PARAM.test(param.name)) return 'p.bad.name';
  if (draft.params.some((it) => it !== param && it.name === param.name)) return 'p.bad.twice';
  if (reserved.has(param.name)) return 'p.bad.reserved';
  if (param.type === 'ENUM' && !choices(param).length) return 'p.bad.choices';
  if (initial(param) === BAD) return 'p.bad.default';
  return '';
}

const BAD = Symbol('bad');

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

/** Which of the four steps are right as they are. */
export function steps(draft: ToolDraft, nameFree: boolean): [boolean, boolean, boolean] {
  const text = code(draft);
  const known = new Set(draft.params.map((it) => it.name));
  const sqlRight = draft.mode !== 'SQL' || (usedParams(text).every((it) => known.has(it.name)) && !templates(text).length && reads(text));
  return [
    NAME.test(draft.name) && nameFree && draft.agent.trim().length > 0,
    draft.params.every((it) => !paramFlaw(draft, it)),
    text.trim().length > 0 && sqlRight,
  ];
}

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
    is_active: active,
    params: draft.params.map((it): CustomParam => {
      const given = initial(it);
      return {
        param_name: it.name,
        param_type: it.type,
        is_required: it.required,
        description: it.description,
        ...(given === undefined || given === BAD ? {} : { default: given }),
        ...(it.type === 'ENUM' ? { enum: choices(it) } : {}),
      };
    }),
  };
}

export function fromTool(tool: CustomTool): ToolDraft {
  const isSql = tool.tool_type === 'SQL';
  return {
    name: tool.name,
    agent: tool.description_agent,
    user: tool.description_user,
    mode: tool.tool_type,
    source: tool.source ?? '',
    sql: isSql ? tool.definition : '',
    python: isSql ? '' : tool.definition,
    format: tool.result_format ?? 'auto',
    params: tool.params.map((it) => ({
      ...emptyParam(it.param_name),
      type: (it.enum?.length ? 'ENUM' : it.param_type.toUpperCase()) as DraftParam['type'],
      required: it.is_required,
      description: it.description,
      initial: it.default === undefined || it.default === null ? '' : typeof it.default === 'object' ? JSON.stringify(it.default) : String(it.default),
      choices: (it.enum ?? []).join(', '),
    })),
  };
}

/** The schema that a model will see. */
export function schemaOf(draft: ToolDraft): object {
  const types = { STRING: 'string', NUMBER: 'number', INTEGER: 'integer', BOOLEAN: 'boolean', ENUM: 'string', LIST: 'array', OBJECT: 'object' };
  const properties = Object.fromEntries(draft.params.map((it) => {
    const given = initial(it);
    return [it.name, {
      type: types[it.type],
      ...(it.type === 'ENUM' ? { enum: choices(it) } : {}),
      ...(it.description ? { description: it.description } : {}),
      ...(given === undefined || given === BAD ? {} : { default: given }),
    }];
  }));
  return { type: 'object', properties, required: draft.params.filter((it) => it.required).map((it) => it.name) };
}

/** What is typed for a test, as the value of its kind; `undefined` is not sent. */
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
