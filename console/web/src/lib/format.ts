/** Numbers, times and sizes for people, in the language of the page. */
import { i18n } from './i18n.svelte';

export function ms(value: number | null | undefined): string {
  if (value == null) return '–';
  if (value < 1) return `${value.toFixed(2)} ms`;
  if (value < 10) return `${value.toFixed(1)} ms`;
  if (value < 1000) return `${Math.round(value)} ms`;
  return `${(value / 1000).toFixed(value < 10_000 ? 1 : 0)} s`;
}

export function bytes(value: number): string {
  if (value < 1000) return `${value} B`;
  if (value < 1_000_000) return `${(value / 1000).toFixed(value < 10_000 ? 1 : 0)} kB`;
  return `${(value / 1_000_000).toFixed(1)} MB`;
}

/** Memory, as limits are set: in MiB. */
export function binaryBytes(value: number): string {
  if (value < 1 << 20) return `${Math.ceil(value / 1024)} KiB`;
  const mebibytes = value / (1 << 20);
  return mebibytes < 10 ? `${mebibytes.toFixed(1).replace(/\.0$/, '')} MiB` : `${count(Math.round(mebibytes))} MiB`;
}

export function count(value: number): string {
  return value.toLocaleString(i18n.lang);
}

const steps: [Intl.RelativeTimeFormatUnit, number][] = [
  ['second', 60],
  ['minute', 60],
  ['hour', 24],
  ['day', 365],
];

/** "3 min. ago"; `now` makes it change while one looks. */
export function ago(time: number, now: number): string {
  let value = -Math.max(0, Math.round((now - time) / 1000));
  for (const [unit, size] of steps) {
    if (Math.abs(value) < size) return relative(value, unit);
    value = Math.round(value / size);
  }
  return relative(value, 'year');
}

const cache = new Map<string, Intl.RelativeTimeFormat>();

function relative(value: number, unit: Intl.RelativeTimeFormatUnit): string {
  const key = i18n.lang;
  let format = cache.get(key);
  if (!format) {
    format = new Intl.RelativeTimeFormat(key, { numeric: 'always', style: 'narrow' });
    cache.set(key, format);
  }
  return format.format(value, unit);
}

export function exact(time: number): string {
  return new Date(time).toLocaleString(i18n.lang, { dateStyle: 'medium', timeStyle: 'medium' });
}

export function clock(time: number): string {
  const at = new Date(time);
  const two = (value: number) => String(value).padStart(2, '0');
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** Day and time, for a list that goes back for days. */
export function dayTime(time: number): string {
  return `${new Date(time).toLocaleDateString(i18n.lang, { month: 'short', day: 'numeric' })} ${clock(time).slice(0, 5)}`;
}

export function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
export const mod = isMac ? '⌘' : 'Ctrl';
