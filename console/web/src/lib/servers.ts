/** How servers are ordered and what can be done with one. */
import { at, post } from './api';
import type { Draft } from './paste';
import type { Server, ServerConfig, ServerStatus } from './types';

/** The versions of the protocol that a server can be held to, newest first. */
export const protocolVersions = ['2026-07-28', '2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'];

/** Failed ones first, then by name. */
export function byUrgency(servers: Server[]): Server[] {
  const rank = (it: Server) => (it.status === 'FAILED' || it.status === 'NEEDS_SIGN_IN' ? 0 : 1);
  return [...servers].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
}

export function actionOf(status: ServerStatus): { call: string; label: string } {
  switch (status) {
    case 'CONNECTED':
    case 'CONNECTING':
      return { call: 'disconnect', label: 'act.disconnect' };
    case 'FAILED':
      return { call: 'connect', label: 'act.retry' };
    case 'NEEDS_SIGN_IN':
      return { call: 'login', label: 'act.login' };
    case 'DISABLED':
      return { call: 'enable', label: 'act.enable' };
    default:
      return { call: 'connect', label: 'act.connect' };
  }
}

export function withinSeconds(time: number, now: number): number {
  return Math.max(0, Math.ceil((time - now) / 1000));
}

/** What the hub is sent of a draft: the members of its transport only. */
export function configOf({ transportType, config }: Draft): ServerConfig {
  const { command, args, env, cwd, run, url, headers, auth } = config;
  return transportType === 'STDIO' ? { command, args, env, cwd: cwd || undefined, run } : { url, headers, auth };
}

/** How often a lost server was tried again and when it is next; nothing while it is not lost. */
export function attemptsOf(server: Pick<Server, 'status' | 'attempts' | 'nextAttemptAt'>, now: number): { key: 'attempts.next' | 'attempts.now' | 'attempts.over'; values: Record<string, number> } | null {
  const { status, attempts, nextAttemptAt } = server;
  if (nextAttemptAt) return { key: 'attempts.next', values: { n: attempts, s: withinSeconds(nextAttemptAt, now) } };
  if (status === 'FAILED') return { key: 'attempts.over', values: { n: attempts } };
  return status === 'CONNECTING' && attempts ? { key: 'attempts.now', values: { n: attempts } } : null;
}

/** Does what a button says. A sign-in continues on the page of the authorization server. */
export async function perform(name: string, call: string): Promise<void> {
  const done = await post<{ authorization_url?: string } | undefined>(at`/api/mcp/servers/${name}/${call}`);
  if (call === 'login' && done?.authorization_url) location.assign(done.authorization_url);
}
