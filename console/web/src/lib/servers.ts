/** How servers are ordered and what can be done with one. Pure. */
import type { Server, ServerStatus } from './types';

/** Failed ones first, then by name. */
export function byUrgency(servers: Server[]): Server[] {
  const rank = (it: Server) => (it.status === 'FAILED' ? 0 : 1);
  return [...servers].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
}

export function actionOf(status: ServerStatus): { call: string; label: string } {
  switch (status) {
    case 'CONNECTED':
    case 'CONNECTING':
      return { call: 'disconnect', label: 'act.disconnect' };
    case 'FAILED':
      return { call: 'connect', label: 'act.retry' };
    case 'DISABLED':
      return { call: 'enable', label: 'act.enable' };
    default:
      return { call: 'connect', label: 'act.connect' };
  }
}

export function withinSeconds(time: number, now: number): number {
  return Math.max(0, Math.ceil((time - now) / 1000));
}
