export type Theme = 'system' | 'light' | 'dark';

const kept = localStorage.getItem('maru.theme');
export const theme = $state({ value: (kept === 'light' || kept === 'dark' ? kept : 'system') as Theme });

const system = matchMedia('(prefers-color-scheme: dark)');

export function isDark(): boolean {
  return theme.value === 'system' ? system.matches : theme.value === 'dark';
}

export function setTheme(value: Theme): void {
  theme.value = value;
  if (value === 'system') {
    localStorage.removeItem('maru.theme');
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem('maru.theme', value);
    document.documentElement.dataset.theme = value;
  }
}

setTheme(theme.value);
