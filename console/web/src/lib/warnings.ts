/** What the hub warns of before it starts a program, in the language of the page. Pure. */
import type { Key } from './i18n.svelte';

export interface WarningText {
  key: Key;
  values: Record<string, string>;
}

/** The sentences of the hub. A sentence that is not listed is shown as it came. */
const sentences: [RegExp, Key][] = [
  [/^(?<program>.+) is a shell: it runs any command it is given$/s, 'warning.shell'],
  [/^(?<program>.+) runs code or other programs named by its argument "(?<argument>.*)"$/s, 'warning.code'],
  [/^the variable (?<name>.+) decides which code is loaded$/s, 'warning.variable'],
  [/^the variable (?<name>.+) decides where settings or programs are found$/s, 'warning.folder'],
  [/^the argument "(?<argument>.*)" of (?<program>.+) gives the container access to this machine$/s, 'warning.container'],
];

export function readWarning(sentence: string): WarningText | null {
  for (const [pattern, key] of sentences) {
    const found = sentence.match(pattern);
    if (found) return { key, values: { ...found.groups } };
  }
  return null;
}
