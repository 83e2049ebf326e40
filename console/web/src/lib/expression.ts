/** Names that an expression uses and nobody declared. Pure. */
import { pythonLanguage } from '@codemirror/lang-python';
import type { SyntaxNode } from '@lezer/common';
import type { Used } from './sql';

/** What the language itself has; docs/expressions.md is the reference. */
export const builtins = new Set(
  ('abs all any ascii bin bool chr dict divmod enumerate filter float format hex int iter len list map max min next oct ord pow range repr reversed round set sorted str sum tuple zip ' +
    'acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist exp exp2 expm1 fabs factorial floor fmod frexp fsum gcd hypot isclose isfinite isinf isnan isqrt lcm ldexp log log10 log1p log2 modf perm prod radians remainder sin sinh sqrt tan tanh trunc ' +
    'math pi e tau date datetime timedelta').split(' '),
);

/** Whether a name is given a value where it stands: an assignment, a `for`, a lambda. */
function binds(node: SyntaxNode): boolean {
  for (let inner = node, outer = node.parent; outer; inner = outer, outer = outer.parent) {
    if (outer.name === 'ParamList') return true;
    if (outer.name === 'AssignStatement' || outer.name === 'UpdateStatement') return hasLater(inner, ['AssignOp', 'UpdateOp']);
    if (/Comprehension/.test(outer.name)) {
      const before = nearest(inner, (it) => it.prevSibling, ['for', 'in', 'if']);
      return before === 'for';
    }
    if (!/^(TupleExpression|ArrayExpression|ParenthesizedExpression|VariableName)$/.test(outer.name)) return false;
  }
  return false;
}

function hasLater(node: SyntaxNode, names: string[]): boolean {
  return nearest(node, (it) => it.nextSibling, names) !== '';
}

function nearest(node: SyntaxNode, step: (it: SyntaxNode) => SyntaxNode | null, names: string[]): string {
  for (let at = step(node); at; at = step(at)) if (names.includes(at.name)) return at.name;
  return '';
}

/** Names that are neither declared, nor bound in the expression, nor part of the language. */
export function undeclared(text: string, declared: Iterable<string>): Used[] {
  const known = new Set([...builtins, ...declared]);
  const used: Used[] = [];
  pythonLanguage.parser.parse(text).iterate({
    enter: ({ node }) => {
      if (node.name !== 'VariableName') return;
      const name = text.slice(node.from, node.to);
      const isKeyword = node.parent?.name === 'ArgList' && node.nextSibling?.name === 'AssignOp';
      if (isKeyword) return;
      if (binds(node)) known.add(name);
      else used.push({ name, from: node.from, to: node.to });
    },
  });
  return used.filter((it) => it.name && !known.has(it.name));
}
