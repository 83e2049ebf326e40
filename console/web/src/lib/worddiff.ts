/** What was removed from a text and what was added, word by word. Pure. */

export interface Piece {
  kind: 'same' | 'removed' | 'added';
  text: string;
}

/** The most words of a text that are compared; beyond that a text is shown whole. */
const MOST = 1500;

export function wordDiff(before: string, now: string): Piece[] {
  const old = split(before);
  const next = split(now);
  if (old.length > MOST || next.length > MOST) return [{ kind: 'removed', text: before }, { kind: 'added', text: now }];
  const common = longestCommon(old, next);
  const pieces: Piece[] = [];
  const push = (kind: Piece['kind'], text: string) => {
    const last = pieces.at(-1);
    if (last?.kind === kind) last.text += text;
    else pieces.push({ kind, text });
  };
  let [a, b] = [0, 0];
  while (a < old.length || b < next.length) {
    if (a < old.length && b < next.length && old[a] === next[b]) {
      push('same', old[a]);
      a++;
      b++;
    } else if (b >= next.length || (a < old.length && common[a + 1][b] >= common[a][b + 1])) push('removed', old[a++]);
    else push('added', next[b++]);
  }
  return pieces;
}

/** Words with the space behind them. */
const split = (text: string) => text.match(/\s*[^\s]+\s*/g) ?? (text ? [text] : []);

/** `[a][b]`: how many words the rests of both texts have in common. */
function longestCommon(old: string[], next: string[]): Uint16Array[] {
  const table = Array.from({ length: old.length + 1 }, () => new Uint16Array(next.length + 1));
  for (let a = old.length - 1; a >= 0; a--) {
    for (let b = next.length - 1; b >= 0; b--) table[a][b] = old[a] === next[b] ? table[a + 1][b + 1] + 1 : Math.max(table[a + 1][b], table[a][b + 1]);
  }
  return table;
}
