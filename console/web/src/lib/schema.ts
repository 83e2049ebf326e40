/** JSON Schema as a form: what can be asked for in fields, and the values. Pure. */
import type { Schema } from './types';

export type Kind = 'text' | 'number' | 'integer' | 'boolean' | 'choice' | 'json';

export interface Field {
  name: string;
  kind: Kind;
  required: boolean;
  description: string;
  choices: unknown[];
  initial: unknown;
  long: boolean;
  schema: Schema;
}

export function kindOf(schema: Schema): Kind {
  if (schema.enum?.length) return 'choice';
  const variants = schema.anyOf ?? schema.oneOf;
  if (variants) {
    const real = variants.filter((it) => it.type !== 'null');
    return real.length === 1 ? kindOf(real[0]) : 'json';
  }
  const types = Array.isArray(schema.type) ? schema.type.filter((it) => it !== 'null') : [schema.type];
  if (types.length !== 1) return 'json';
  switch (types[0]) {
    case 'string': return 'text';
    case 'number': return 'number';
    case 'integer': return 'integer';
    case 'boolean': return 'boolean';
    default: return 'json';
  }
}

export function fieldsOf(schema: Schema | null | undefined): Field[] {
  const required = new Set(schema?.required ?? []);
  const fields = Object.entries(schema?.properties ?? {}).map(([name, member]): Field => ({
    name,
    kind: kindOf(member),
    required: required.has(name),
    description: member.description ?? member.title ?? '',
    choices: member.enum ?? [],
    initial: member.default,
    long: /(sql|query|text|content|body|code|prompt|message)/i.test(name) && kindOf(member) === 'text',
    schema: member,
  }));
  return [...fields.filter((it) => it.required), ...fields.filter((it) => !it.required)];
}

/** What is typed becomes a value, or an explanation of why it is none. */
export function read(field: Field, typed: string): { value?: unknown; why?: 'number' | 'integer' | 'json' } {
  switch (field.kind) {
    case 'text':
      return { value: typed };
    case 'number':
    case 'integer': {
      const value = Number(typed);
      if (!typed.trim() || !Number.isFinite(value)) return { why: 'number' };
      return field.kind === 'integer' && !Number.isInteger(value) ? { why: 'integer' } : { value };
    }
    case 'boolean':
      return { value: typed === 'true' };
    case 'choice':
      return { value: field.choices.find((it) => String(it) === typed) };
    case 'json':
      try {
        return { value: JSON.parse(typed) };
      } catch {
        return { why: 'json' };
      }
  }
}

/** A value as one types it. */
export function write(field: Field, value: unknown): string {
  if (value === undefined || value === null) return field.kind === 'json' && value === null ? 'null' : '';
  return field.kind === 'json' ? JSON.stringify(value) : String(value);
}

/** What a form begins with: defaults of required fields, and nothing else. */
export function starting(fields: Field[]): Record<string, unknown> {
  const given = fields.filter((it) => it.required);
  return Object.fromEntries(given.map((it) => [it.name, it.initial ?? empty(it)]));
}

function empty(field: Field): unknown {
  switch (field.kind) {
    case 'text': return '';
    case 'boolean': return false;
    case 'choice': return field.choices[0];
    case 'json': return field.schema.type === 'array' ? [] : {};
    default: return 0;
  }
}
