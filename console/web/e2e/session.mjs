// What the journeys share: signed-in pages, what the browser complains of, and axe.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { open } from './hub.mjs';

/** What the pages complained of since it was emptied. */
export const errors = [];

export async function signedIn(hub, options = {}) {
  const context = await open({ errors, ...options });
  const response = await context.request.post(`${hub.url}/api/session`, { data: { token: hub.token } });
  assert.equal(response.status(), 200);
  return context;
}

/** What people of either language read, with the pages to read it on. */
export async function inBothLanguages(hub, words, journey, options = {}) {
  for (const [locale, word] of Object.entries(words)) {
    const context = await signedIn(hub, { locale, ...options });
    await journey(await context.newPage(), word, locale);
    await context.close();
  }
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What axe finds wrong on the page, and how much of it does not fit the width. */
export async function faultsOf(page) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  await page.evaluate(axe);
  const wrong = await page.evaluate(async () => {
    const done = await window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa'] });
    return done.violations.map((it) => `${it.id}: ${it.nodes.slice(0, 3).map((node) => `${node.target.join(' ')} ${node.any[0]?.message ?? ''}`).join(' | ')}`);
  });
  return wide > 0 ? [`${wide} px too wide`, ...wrong] : wrong;
}
