/** Two languages, one table: what Korean lacks does not compile. */
import { en, type Table } from './en';
import { withParticles } from './korean';
import { readMessage } from './messages';

export type Lang = 'en' | 'ko';
export type Key = keyof Table;

const tables: Partial<Record<Lang, Table>> = { en };

function initial(): Lang {
  const kept = localStorage.getItem('maru.lang');
  if (kept === 'en' || kept === 'ko') return kept;
  return navigator.language.startsWith('ko') ? 'ko' : 'en';
}

export const i18n = $state({ lang: 'en' as Lang });

export async function setLang(lang: Lang, keep = true): Promise<void> {
  if (!tables[lang]) tables[lang] = (await import('./ko')).ko;
  i18n.lang = lang;
  document.documentElement.lang = lang;
  if (keep) localStorage.setItem('maru.lang', lang);
  // The pages that the hub writes itself are in the same language.
  document.cookie = `maru_language=${lang}; path=/oauth; max-age=31536000; samesite=lax`;
}

export const loadLang = () => setLang(initial(), false);

/** The text of `key`, with `{name}` replaced, and `{n|tool|tools}` by the word for the count. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  const text: string = (tables[i18n.lang] ?? en)[key];
  const counted = text.replace(/\{(\w+)\|([^|}]*)\|([^}]*)\}/g, (_, name: string, one: string, many: string) => (String(values[name]) === '1' ? one : many));
  const filled = counted.replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? ''));
  return i18n.lang === 'ko' ? withParticles(filled) : filled;
}

/** The error of a call in the language of the page; in English as it was recorded and is searched. */
export const callError = (sentence: string) => (i18n.lang === 'en' ? sentence : hubText(sentence));

/** A sentence of the hub in the language of the page. */
export function hubText(sentence: string): string {
  const found = readMessage(sentence);
  if (!found) return sentence;
  // A reason or a hint may be a sentence of the hub, too.
  const { reason = '', hint = '' } = found.values;
  return t(found.key, { ...found.values, reason: reason && hubText(reason), hint: hint && hubText(hint) }).trim();
}
