/** Which `:names` a statement uses. Pure. */

export interface Used {
  name: string;
  from: number;
  to: number;
}

const token = /'(?:[^']|'')*'?|"(?:[^"]|"")*"?|--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|\$(\w*)\$[\s\S]*?(?:\$\1\$|$)|::\s*\w+|(?<![\p{L}\p{N}_\])]):([\p{L}_][\p{L}\p{N}_]*)/gu;

/** Parameters, without those in strings, comments, quoted names, casts and dollar quotes. */
export function usedParams(sql: string): Used[] {
  const used: Used[] = [];
  for (const match of sql.matchAll(token)) {
    if (match[2]) used.push({ name: match[2], from: match.index, to: match.index + match[0].length });
  }
  return used;
}

/** `{{name}}` of templates, which is never filled in; `:name` is. */
export function templates(sql: string): Used[] {
  return [...sql.matchAll(/\{\{\s*([\p{L}\p{N}_]+)\s*\}\}/gu)].map((it) => ({ name: it[1], from: it.index, to: it.index + it[0].length }));
}

const reading = /^\s*(?:(?:--[^\n]*\n|\/\*[\s\S]*?\*\/)\s*)*(select|with|values|table)\b/i;

/** Whether a statement looks as if it only reads; the hub decides. */
export function reads(sql: string): boolean {
  return !sql.trim() || reading.test(sql);
}

/** Which of the tables `known` a statement names. */
export function tablesIn(sql: string, known: string[]): Set<string> {
  const words = new Set((sql.toLowerCase().match(/[\w.]+/g) ?? []).flatMap((it) => [it, it.split('.').pop() ?? it]));
  return new Set(known.filter((it) => words.has(it.toLowerCase()) || words.has(it.toLowerCase().split('.').pop() ?? '')));
}
