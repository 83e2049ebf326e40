/** A tool's result as people look at it: rows, a value, text, pictures. Pure. */
import type { Content, ToolResult } from './types';

export interface Rows {
  columns: string[];
  rows: Record<string, unknown>[];
}

export interface Shown {
  rows: Rows | null;
  value: unknown;
  text: string;
  images: { mime: string; data: string }[];
  isError: boolean;
}

export function shown(result: ToolResult): Shown {
  const content = result.content ?? [];
  const text = content.map(textOf).filter(Boolean).join('\n');
  const value = result.structuredContent ?? parsed(text);
  return {
    rows: rowsOf(value),
    value,
    text,
    images: content.filter((it) => it.type === 'image' && it.data && /^image\/(png|jpeg|gif|webp|svg\+xml)$/.test(it.mimeType ?? '')).map((it) => ({ mime: it.mimeType!, data: it.data! })),
    isError: result.isError === true,
  };
}

function textOf(content: Content): string {
  switch (content.type) {
    case 'text': return content.text ?? '';
    case 'resource': return content.resource?.text ?? content.resource?.uri ?? '';
    case 'resource_link': return content.uri ?? '';
    default: return '';
  }
}

function parsed(text: string): unknown {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The first list of records in a value: the value itself, or within its members. */
export function rowsOf(value: unknown, depth = 0): Rows | null {
  if (Array.isArray(value)) {
    if (!value.length || !value.every(isRecord)) return null;
    const columns = [...new Set(value.slice(0, 200).flatMap((it) => Object.keys(it)))];
    return columns.length ? { columns, rows: value } : null;
  }
  if (!isRecord(value) || depth > 3) return null;
  for (const member of Object.values(value)) {
    const found = rowsOf(member, depth + 1);
    if (found) return found;
  }
  return null;
}

/** The value of a run: rows of a result that was cut off, and whether it was. */
export function runValue(result: unknown): { value: unknown; truncated: boolean } {
  if (isRecord(result) && result.truncated === true && Array.isArray(result.rows)) return { value: result.rows, truncated: true };
  return { value: isRecord(result) ? [result] : result, truncated: false };
}

export interface Bar {
  label: string;
  value: number;
}

const MOST_BARS = 12;
const isKey = (column: string) => /(^|_)(id|uid|no|year)$/i.test(column);

/** Bars for rows with a label and a number; `null` where there are none. */
export function barsOf(rows: Rows | null): { label: string; number: string; bars: Bar[]; left: number } | null {
  if (!rows || rows.rows.length < 2) return null;
  const all = (column: string, kind: string) => rows.rows.every((it) => it[column] === null || typeof it[column] === kind) && rows.rows.some((it) => typeof it[column] === kind);
  const label = rows.columns.find((it) => all(it, 'string')) ?? rows.columns.find((it) => all(it, 'number') && isKey(it));
  const numbers = rows.columns.filter((it) => it !== label && all(it, 'number'));
  const number = numbers.find((it) => !isKey(it)) ?? numbers[0];
  if (!label || !number) return null;
  const bars = rows.rows.slice(0, MOST_BARS).map((it) => ({ label: cell(it[label]), value: Number(it[number] ?? 0) }));
  return { label, number, bars, left: rows.rows.length - bars.length };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function cell(value: unknown): string {
  if (value === null || value === undefined) return 'NULL';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}
