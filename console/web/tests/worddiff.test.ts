import { expect, test } from 'vitest';
import { wordDiff } from '../src/lib/worddiff';

const shown = (before: string, now: string) => wordDiff(before, now).map((it) => ({ same: '', removed: '-', added: '+' })[it.kind] + it.text.trim()).join('|');

test('only what changed is marked', () => {
  expect(shown('Reads a file.', 'Reads a file.')).toBe('Reads a file.');
  expect(shown('Reads a small file', 'Reads a large file')).toBe('Reads a|-small|+large|file');
  expect(shown('', 'new')).toBe('+new');
  expect(shown('파일을 읽습니다', '파일을 지웁니다')).toBe('파일을|-읽습니다|+지웁니다');
});

test('both texts can be read from the pieces, whatever they are', () => {
  for (const [before, now] of [['a b c d', 'b c x d e'], ['x', ''], ['  a\n b', 'a\n  b c'], ['w '.repeat(2000), 'w']]) {
    const pieces = wordDiff(before, now);
    const text = (leave: string) => pieces.filter((it) => it.kind !== leave).map((it) => it.text).join('').replace(/\s/g, '');
    expect(text('added')).toBe(before.replace(/\s/g, ''));
    expect(text('removed')).toBe(now.replace(/\s/g, ''));
  }
});
