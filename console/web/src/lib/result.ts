/** A tool's result as people look at it: rows, a value, text, pictures. Pure. */
import type { Content, ToolResult } from './types';

export interface Rows {
  columns: string[];
  rows: Record<string, unknown>[];
}

/** What a browser does not show: sounds and other files, in Base64. */
export interface ResultFile {
  name: string;
  mime: string;
  data: string;
}

export interface Shown {
  rows: Rows | null;
  value: unknown;
  text: string;
  images: { mime: string; data: string }[];
  files: ResultFile[];
  isError: boolean;
}

export function shown(result: ToolResult): Shown {
  const content = result.content ?? [];
  const text = content.map(textOf).filter(Boolean).join('\n');
  const blobs = content.flatMap(blobOf).map((it, n) => ({ ...it, name: it.name || fileName(it.mime, n) }));
  const value = result.structuredContent ?? parsed(text);
  return {
    rows: rowsOf(value),
    value,
    text,
    images: blobs.filter((it) => isPicture(it.mime)),
    files: blobs.filter((it) => !isPicture(it.mime)),
    isError: result.isError === true,
  };
}

export const isPicture = (mime: string | undefined) => /^image\/(png|jpeg|gif|webp|svg\+xml)$/.test(mime ?? '');

/** The last part of an address, as the name of a file. */
export const lastPart = (uri: string | undefined) => (uri ?? '').split(/[?#]/)[0].split('/').pop()?.replace(/[^\p{L}\p{N}._-]+/gu, '_') ?? '';

const fileName = (mime: string, n: number) => `result-${n + 1}.${(mime.split('/')[1] ?? 'bin').replace(/[^a-z0-9]+.*$/i, '') || 'bin'}`;

function blobOf(content: Content): ResultFile[] {
  const { type, data, mimeType, resource } = content;
  if ((type === 'image' || type === 'audio') && data) return [{ name: '', mime: mimeType ?? '', data }];
  if (type === 'resource' && resource?.blob) return [{ name: lastPart(resource.uri), mime: resource.mimeType ?? '', data: resource.blob }];
  return [];
}

function textOf(content: Content): string {
  switch (content.type) {
    case 'text': return content.text ?? '';
    case 'resource': return content.resource?.text ?? content.resource?.uri ?? '';
    case 'resource_link': return [content.name, content.uri].filter(Boolean).join('  ');
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
