/** Types of columns, short enough to be told apart. Pure. */

const short: [RegExp, string][] = [
  [/^timestamp(\(\d\))? with time zone$/, 'timestamptz$1'],
  [/^timestamp(\(\d\))? without time zone$/, 'timestamp$1'],
  [/^time(\(\d\))? with time zone$/, 'timetz$1'],
  [/^time(\(\d\))? without time zone$/, 'time$1'],
  [/^character varying(\(\d+\))?$/, 'varchar$1'],
  [/^character(\(\d+\))?$/, 'char$1'],
  [/^double precision$/, 'double'],
  [/^bit varying(\(\d+\))?$/, 'varbit$1'],
];

/** PostgreSQL's own short name of a type, also of a list of it. */
export function shortType(type: string): string {
  const [, base, list] = type.toLowerCase().match(/^(.*?)((?:\[\])*)$/s) ?? ['', type, ''];
  for (const [pattern, name] of short) if (pattern.test(base)) return base.replace(pattern, name) + list;
  return base + list;
}
