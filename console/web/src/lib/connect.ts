/** What `/api/connect` sends: how each client uses this hub. Pure. */

export type Note = { en: string; ko: string };

export type ConnectMethod =
  | { kind: 'file'; format: 'jsonc' | 'toml' | 'yaml'; paths: { linux: string; macos: string; windows: string }; text: string }
  | { kind: 'command'; text: string }
  | { kind: 'environment'; text: string }
  | { kind: 'settings'; place: Note; text: string };

export interface ConnectSection {
  methods: ConnectMethod[];
  installLink?: string;
  note?: Note;
}

export interface ConnectPage {
  origin: string;
  requiresToken: boolean;
  tokenPlaceholder: string;
  model: string;
  models: string[];
  clients: { id: string; title: string; mcp: ConnectSection; models: ConnectSection }[];
}

/** The path of a file on the system of this browser. */
export function methodPath(method: ConnectMethod & { kind: 'file' }, platform = navigator.platform): string {
  if (/^Win/.test(platform)) return method.paths.windows;
  return /^Mac|^iP/.test(platform) ? method.paths.macos : method.paths.linux;
}

/** The text with a token that was just made. */
export function withToken(text: string, page: ConnectPage | null, token?: string): string {
  return page && token ? text.replaceAll(page.tokenPlaceholder, token) : text;
}
