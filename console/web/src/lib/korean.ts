/** Korean particles after names and numbers: 을(를) becomes 을 or 를. Pure. */

/** How a digit ends when it is read: with a consonant, with ㄹ, or with a vowel. */
const digits = ['consonant', 'liquid', 'vowel', 'consonant', 'vowel', 'vowel', 'consonant', 'liquid', 'liquid', 'vowel'] as const;

function ending(letter: string): 'consonant' | 'liquid' | 'vowel' | null {
  if (/[0-9]/.test(letter)) return digits[Number(letter)];
  const code = letter.charCodeAt(0) - 0xac00;
  if (code < 0 || code > 11171) return null;
  const final = code % 28;
  return final === 0 ? 'vowel' : final === 8 ? 'liquid' : 'consonant';
}

/** Chooses each particle by what stands before it; after other letters both forms stay. */
export function withParticles(text: string): string {
  return text.replace(/(.)([”’"']?)(을\(를\)|이\(가\)|은\(는\)|과\(와\)|\(으\)로)/gu, (whole, letter: string, quote: string, particle: string) => {
    const end = ending(letter);
    if (!end) return whole;
    if (particle === '(으)로') return letter + quote + (end === 'consonant' ? '으로' : '로');
    const [after, other] = [particle[0], particle[2]];
    return letter + quote + (end === 'vowel' ? other : after);
  });
}
