/** How clients see a tool, as it is typed and as the hub takes it. Pure. */
import type { Overridden, OverrideChange } from './types';

export interface OverrideForm {
  name: string;
  title: string;
  description: string;
  tags: string;
  parameters: { name: string; description: string; kind: '' | 'default' | 'fixed'; value: string }[];
  annotations: { name: string; value: string }[];
}

const HINTS = ['readOnlyHint', 'destructiveHint', 'idempotentHint', 'openWorldHint'];

export function formOfOverride({ override, original }: Overridden): OverrideForm {
  const change: OverrideChange = override ?? {};
  const names = new Set([...Object.keys(original.inputSchema?.properties ?? {}), ...Object.keys(change.parameters ?? {})]);
  return {
    name: change.name ?? '',
    title: change.title ?? '',
    description: change.description ?? '',
    tags: (change.tags ?? []).join(', '),
    parameters: [...names].map((name) => {
      const it = change.parameters?.[name] ?? {};
      const kind = it.fixed !== undefined ? 'fixed' : it.default !== undefined ? 'default' : '';
      return { name, description: it.description ?? '', kind, value: kind ? JSON.stringify(it[kind]) : '' };
    }),
    annotations: HINTS.map((name) => ({ name, value: String(change.annotations?.[name] ?? '') })),
  };
}

/** Throws if the value of a parameter is no JSON. */
export function overrideOf(form: OverrideForm): OverrideChange {
  const texts = { name: form.name.trim(), title: form.title.trim(), description: form.description.trim() };
  const parameters = form.parameters.filter((it) => it.description || it.kind).map(({ name, description, kind, value }) => {
    if (!kind) return [name, { description }] as const;
    try {
      return [name, { ...(description ? { description } : {}), [kind]: JSON.parse(value) as unknown }] as const;
    } catch {
      throw new Error(`${name}: ${value || '""'} is not JSON`);
    }
  });
  const annotations = form.annotations.filter((it) => it.value).map((it) => [it.name, it.value === 'true']);
  const tags = form.tags.split(',').map((it) => it.trim()).filter(Boolean);
  return {
    ...Object.fromEntries(Object.entries(texts).filter(([, text]) => text)),
    ...(parameters.length ? { parameters: Object.fromEntries(parameters) } : {}),
    ...(annotations.length ? { annotations: Object.fromEntries(annotations) } : {}),
    ...(tags.length ? { tags } : {}),
  };
}
