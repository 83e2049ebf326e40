/** Where the page is. Filters, tabs and open drawers are in the address too. */
export const route = $state({ path: location.pathname, query: location.search });

type Guard = () => boolean;
let guard: Guard | undefined;

/** Asks `leave` before the page is left; the returned function stops that. */
export function guardLeaving(leave: Guard): () => void {
  guard = leave;
  return () => {
    if (guard === leave) guard = undefined;
  };
}

function read() {
  route.path = location.pathname;
  route.query = location.search;
}

/** Goes to an address of the console. */
export function go(to: string, replace = false): void {
  const target = new URL(to, location.href);
  const samePage = target.pathname === route.path;
  if (!samePage && guard && !guard()) return;
  if (target.pathname + target.search === route.path + route.query) return;
  history[replace ? 'replaceState' : 'pushState']({}, '', target);
  read();
  if (!samePage) document.querySelector('main')?.scrollTo(0, 0);
}

/** A value of the address, such as `?tab=log`. */
export function param(name: string): string {
  return new URLSearchParams(route.query).get(name) ?? '';
}

/** Changes values of the address; empty ones go. */
export function setParams(values: Record<string, string>, replace = true): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ''), replace);
}

/** The parts of the path, decoded. */
export function parts(): string[] {
  return route.path.split('/').filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

addEventListener('popstate', () => {
  if (location.pathname !== route.path && guard && !guard()) {
    history.pushState({}, '', route.path + route.query);
    return;
  }
  read();
});

/** Links of the console do not load the page anew. */
addEventListener('click', (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element | null)?.closest?.('a');
  if (!link || link.target || link.origin !== location.origin || link.hasAttribute('download') || link.relList.contains('external')) return;
  if (link.pathname === location.pathname && link.hash) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
