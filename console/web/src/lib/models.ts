export interface Model {
  id: string;
}

/** An entry of `GET /api/models`. */
export interface ModelEntry {
  name: string;
  origin: 'settings' | 'console' | 'implied';
  backend?: string;
  running?: number;
  waiting?: number;
  consecutive_failures?: number;
  cooldown_seconds?: number;
  /** Why it cannot be used. */
  fault?: string;
}

/** The members of an entry of `models` in maru.yaml. */
export type ModelDefinition = { name: string; aliases?: string[]; price?: Record<string, number> } & Record<string, unknown>;

export interface ModelTest {
  ok: boolean;
  model?: string;
  text?: string;
  ms?: number;
  models?: string[];
  error?: { message: string; field?: string };
}

/** Where models are commonly served. */
export const backendPresets = [
  { id: 'Ollama', name: '*', backend: 'openai', base_url: 'http://127.0.0.1:11434/v1' },
  { id: 'LM Studio', name: '*', backend: 'openai', base_url: 'http://127.0.0.1:1234/v1' },
  { id: 'llama.cpp', name: 'local', backend: 'openai', base_url: 'http://127.0.0.1:8080/v1' },
  { id: 'vLLM', name: '*', backend: 'openai', base_url: 'http://127.0.0.1:8000/v1' },
  { id: 'OpenAI', name: 'gpt-*', backend: 'openai', base_url: '' },
  { id: 'Anthropic', name: 'claude-*', backend: 'anthropic', base_url: '' },
  { id: 'Gemini', name: 'gemini-*', backend: 'gemini', base_url: '' },
  { id: 'OpenRouter', name: '*', backend: 'openai', base_url: 'https://openrouter.ai/api/v1' },
] as const;

const numbers = ['requests_per_minute', 'max_concurrent', 'max_waiting', 'timeout_ms', 'idle_timeout_ms', 'cooldown_ms'];
const prices = ['input', 'output', 'cached'];

/** What the form shows of a definition. Pure. */
export function formOf(definition: ModelDefinition): Record<string, string> {
  const text = (value: unknown) => (value === undefined || value === null ? '' : String(value));
  const form: Record<string, string> = { name: '', backend: 'openai', base_url: '', api_key: '', model: '', tool_mode: 'auto', dialect: 'auto', starts_in_reasoning: 'auto', client_mode: '' };
  for (const key of [...Object.keys(form), ...numbers]) form[key] = text(definition[key]) || form[key] || '';
  form.aliases = (definition.aliases ?? []).join(', ');
  for (const key of prices) form[`price.${key}`] = text(definition.price?.[key]);
  return form;
}

/** The definition that the form describes; what is empty keeps its default. Pure. */
export function definitionOf(form: Record<string, string>): ModelDefinition {
  const number = (text: string) => (Number.isFinite(Number(text)) ? Number(text) : text);
  const definition: ModelDefinition = { name: form.name.trim() };
  for (const key of ['backend', 'base_url', 'model', 'tool_mode', 'dialect', 'starts_in_reasoning', 'client_mode']) {
    if (form[key].trim()) definition[key] = form[key].trim();
  }
  // An empty key removes a stored one; the mask keeps it.
  definition.api_key = form.api_key;
  for (const key of numbers) if (form[key]?.trim()) definition[key] = number(form[key].trim());
  const aliases = form.aliases.split(',').map((it) => it.trim()).filter(Boolean);
  if (aliases.length) definition.aliases = aliases;
  const price = prices.filter((it) => form[`price.${it}`].trim()).map((it) => [it, number(form[`price.${it}`].trim())]);
  if (price.length) definition.price = Object.fromEntries(price);
  return definition;
}

/** The list of `/v1/models`, whatever else it says. Pure. */
export function modelsOf(answer: unknown): Model[] {
  const data = (answer as { data?: unknown } | null)?.data;
  const found = Array.isArray(data) ? data.filter((it): it is Model => typeof (it as Model | null)?.id === 'string') : [];
  return [...new Map(found.map((it) => [it.id, it])).values()];
}
