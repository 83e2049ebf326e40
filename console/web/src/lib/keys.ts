/** Keys of a page, besides those that work everywhere. */

export interface PageKeys {
  new?: () => void;
  run?: () => void;
  save?: () => void;
}

let current: PageKeys = {};

export function pageKeys(keys: PageKeys): () => void {
  current = keys;
  return () => {
    if (current === keys) current = {};
  };
}

export const keysOfPage = () => current;

export function inField(event: Event): boolean {
  const element = event.target as HTMLElement | null;
  return !!element?.closest?.('input:not([type=checkbox]), textarea, select, [contenteditable=true], .cm-editor');
}

/** Moves the focus among rows with j, k and arrows; x and Space act on the row. */
export function rowKeys(event: KeyboardEvent, selector: string): void {
  if (inField(event) || event.metaKey || event.ctrlKey || event.altKey) return;
  const down = event.key === 'j' || event.key === 'ArrowDown';
  const up = event.key === 'k' || event.key === 'ArrowUp';
  if (!down && !up) return;
  const rows = [...document.querySelectorAll<HTMLElement>(selector)];
  if (!rows.length) return;
  const here = (document.activeElement as HTMLElement | null)?.closest<HTMLElement>(selector);
  const at = here ? rows.indexOf(here) : -1;
  const next = rows[Math.min(rows.length - 1, Math.max(0, at + (down ? 1 : -1)))];
  event.preventDefault();
  next.focus();
}
