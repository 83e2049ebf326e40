import './styles/tokens.css';
import './styles/base.css';
import './lib/theme.svelte';
import { mount } from 'svelte';
import App from './App.svelte';
import { loadLang } from './lib/i18n.svelte';

/**
 * A page that was open while the hub was updated asks for files that are gone: it loads anew,
 * once. While the hub is down it stays, because the browser would show an error in its place.
 */
addEventListener('vite:preloadError', () => {
  const last = Number(sessionStorage.getItem('maru.reloaded') ?? 0);
  if (Date.now() - last < 10_000) return;
  void fetch('/healthz', { cache: 'no-store' }).then(
    () => {
      sessionStorage.setItem('maru.reloaded', String(Date.now()));
      location.reload();
    },
    () => undefined,
  );
});

await loadLang();
mount(App, { target: document.getElementById('app')! });
