// What the page weighs: fails when a budget is exceeded.
import { readdirSync, readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

const dist = new URL('../../dist/', import.meta.url);
const read = (name) => readFileSync(new URL(`assets/${name}`, dist));
const zipped = (name) => gzipSync(read(name), { level: 9 }).length;

/** Everything that a file loads before it runs. */
function closure(name, found = new Set()) {
  if (found.has(name)) return found;
  found.add(name);
  const text = read(name).toString();
  for (const match of text.matchAll(/(?:from|import)\s*["']\.\/([\w.-]+\.js)["']/g)) closure(match[1], found);
  return found;
}

const kB = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
const first = [...closure('app.js')];
const firstPage = first.reduce((sum, name) => sum + zipped(name), 0);
const editor = zipped('editor.js');
const builderPage = [...closure('Builder.js', new Set(first))].reduce((sum, name) => sum + zipped(name), 0) + readdirSync(new URL('assets/', dist)).filter((name) => name.endsWith('.css')).reduce((sum, name) => sum + zipped(name), 0);
const all = readdirSync(new URL('assets/', dist)).reduce((sum, name) => sum + read(name).length, 0) + readFileSync(new URL('index.html', dist)).length;
const budgets = [
  ['first page, JavaScript, gzip', firstPage, 60_000],
  ['editor, gzip', editor, 180_000],
  ['builder with all styles, gzip', builderPage, 300_000],
  ['whole build', all, 1_500_000],
];
let over = false;
for (const [what, bytes, most] of budgets) {
  console.log(`${what}: ${kB(bytes)} of ${kB(most)}`);
  over ||= bytes > most;
}
process.exit(over ? 1 : 0);
