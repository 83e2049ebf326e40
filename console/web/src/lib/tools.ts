/** What is said about a tool in a list. Pure. */
import type { Key } from './i18n.svelte';
import type { Tool } from './types';

/** The server that the hub's own tools belong to. */
export const OWN = 'maru';

const texts = new WeakMap<Tool, string>();

/** Whether every word of `wanted` is in the tool's name, description or server. */
export function matches(tool: Tool, wanted: string): boolean {
  if (!wanted) return true;
  let text = texts.get(tool);
  if (text === undefined) {
    text = `${tool.name} ${tool.key} ${tool.title ?? ''} ${tool.server} ${tool.description}`.toLowerCase();
    texts.set(tool, text);
  }
  return wanted.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/** Facts only: what the tool's own description or its definition says. */
export function badges(tool: Tool, type?: string): { label: Key; raw?: string }[] {
  const found: { label: Key; raw?: string }[] = [];
  if (type) found.push({ label: 'badge.own', raw: type === 'SQL' ? 'sql' : 'expr' });
  if (tool.annotations?.readOnlyHint) found.push({ label: 'badge.readonly' });
  else if (tool.annotations?.destructiveHint) found.push({ label: 'badge.destructive' });
  return found;
}
