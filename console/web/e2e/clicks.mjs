// Counts what ten tasks take a person who begins on the page of servers: node e2e/clicks.mjs
// A choice in a list counts as two clicks, a field that is filled as one.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { closeBrowser, fixture, Hub, open } from './hub.mjs';
import { model } from './model.mjs';

const scripted = await model([{ text: 'ok' }]);
const hub = await Hub.start();
const context = await open({});
await context.request.post(`${hub.url}/api/session`, { data: { token: hub.token } });
const page = await context.newPage();
let clicks = 0;
let fields = 0;
const click = async (locator) => { clicks++; await locator.click(); };
const pick = async (locator, value) => { clicks += 2; await locator.selectOption(value); };
const fill = async (locator, text) => { fields++; await locator.fill(text); };
const link = (name) => page.getByRole('link', { name, exact: true });
const button = (name) => page.getByRole('button', { name, exact: true });
const tab = (name) => page.getByRole('tab', { name, exact: true });
const dialog = page.getByRole('dialog');

const words = join(hub.directory, 'words.txt');
writeFileSync(words, 'reads a small file');
await hub.api('POST', '/api/mcp/servers', { name: 'changing', transportType: 'STDIO', autoConnect: true, config: { command: 'node', args: [join(import.meta.dirname, 'changing.mjs'), words] } });
await hub.mcp('tools/call', { name: 'search_docs', arguments: { query: 5 } });
for (let n = 0; n < 3; n++) await hub.mcp('tools/call', { name: 'get_all_employees', arguments: {} });

const tasks = {
  async 'add a server and see its tools'() {
    await click(page.getByRole('button', { name: /^Add server/ }));
    await fill(dialog.getByRole('textbox').first(), `${fixture} stdio`);
    await click(dialog.getByRole('button', { name: 'Add', exact: true }));
    const row = page.locator('tr[data-server]', { has: page.locator('[data-status=CONNECTED]') }).filter({ hasText: 'fixture' });
    await row.waitFor();
    await click(row.locator('.c-target'));
    await page.locator('[data-tool]').first().waitFor();
  },
  async 'allow a host that is in the way'() {
    await click(page.getByRole('button', { name: /^Add server/ }));
    await click(page.locator('[data-known=sentry]'));
    await click(dialog.getByRole('button', { name: 'Test', exact: true }));
    await click(button('Allow mcp.sentry.dev'));
    await page.locator('[data-trial]').waitFor({ timeout: 60_000 });
  },
  async 'add a model and test it'() {
    await click(link('Settings'));
    await click(tab('Models'));
    await click(button('Add model'));
    await fill(dialog.locator('[data-setting=name] input'), 'helper');
    await fill(dialog.locator('[data-setting=base_url] input'), scripted.url);
    await click(dialog.getByRole('button', { name: 'Test', exact: true }));
    await dialog.locator('[data-tested=ok]').waitFor();
    await click(dialog.getByRole('button', { name: 'Save', exact: true }));
    await page.locator('[data-model-entry=helper]').waitFor();
  },
  async 'find why a call failed'() {
    await click(link('Activity'));
    await pick(page.getByLabel('State'), 'error');
    await click(page.locator('tr[data-call]', { hasText: 'not of type' }));
    await page.locator('[data-call-error]').waitFor();
  },
  async 'find the tool that costs most in 30 days'() {
    await click(link('Activity'));
    await click(page.getByLabel('Usage').getByText('30 d', { exact: true }));
    await page.locator('[data-usage-row=get_all_employees]').waitFor();
  },
  async 'give a colleague a token for one tool'() {
    await click(link('Settings'));
    await click(tab('Access'));
    const form = page.locator('form.form');
    await fill(form.locator('input.mono').first(), 'colleague');
    await pick(form.getByLabel('May use'), 'tools');
    await fill(form.locator('input[type=search]'), 'search_docs');
    await click(form.locator('.pick label', { hasText: 'search_docs' }));
    await click(form.locator('button.solid'));
    await page.locator('[data-token=colleague]').waitFor();
  },
  async 'try a tool'() {
    await click(page.locator('nav a[href="/tools"]'));
    await click(page.locator('[data-tool=search_docs]').getByRole('link', { name: 'Try' }));
    await fill(page.locator('[data-arg=query] textarea'), 'vacation');
    await click(page.getByRole('button', { name: /^Run|^Call/ }).first());
    await page.locator('[data-verdict=ok]').waitFor();
  },
  async 'accept a changed tool'() {
    await click(page.locator('tr[data-server=changing] .held'));
    await click(page.locator('[data-changed-tool=first]').getByRole('button', { name: /^Accept/ }));
    await page.locator('[data-changed="1"]').waitFor();
  },
  async 'export everything into one file'() {
    await click(link('Settings'));
    await click(tab('Import and export'));
    const [file] = await Promise.all([page.waitForEvent('download'), click(page.locator('main .btn').first())]);
    assert.equal(JSON.parse(readFileSync(await file.path(), 'utf8')).models[0].api_key, undefined);
  },
  async 'connect a client'() {
    await click(link('Connect a client'));
    await click(page.getByRole('button', { name: 'Cursor', exact: true }).or(page.getByRole('tab', { name: 'Cursor', exact: true })).first());
    await click(page.getByRole('button', { name: 'Copy' }).first());
  },
};

writeFileSync(words, 'deletes a small file');
await hub.api('POST', '/api/mcp/servers/changing/disconnect');
await hub.api('POST', '/api/mcp/servers/changing/connect');
const failed = [];
console.log('clicks  fields  seconds  task');
for (const [name, task] of Object.entries(tasks)) {
  [clicks, fields] = [0, 0];
  const began = Date.now();
  try {
    await page.goto(`${hub.url}/servers`);
    await page.locator('tr[data-server=changing]').waitFor();
    await task();
    console.log(`${String(clicks).padStart(6)}  ${String(fields).padStart(6)}  ${((Date.now() - began) / 1000).toFixed(1).padStart(7)}  ${name}`);
  } catch (error) {
    failed.push(name);
    console.log(`FAILED after ${clicks} clicks: ${name}\n${error.message.split('\n').slice(0, 3).join('\n')}`);
  }
}
// A browser that has seen nothing yet.
const cold = await open({});
await cold.request.post(`${hub.url}/api/session`, { data: { token: hub.token } });
const first = await cold.newPage();
await first.goto(`${hub.url}/servers`);
await first.locator('tr[data-server=changing]').waitFor();
const view = await first.evaluate(() => ({ painted: performance.getEntriesByName('first-contentful-paint')[0]?.startTime, listed: performance.now() }));
console.log(`first view: something is painted after ${Math.round(view.painted)} ms, the servers are listed after ${Math.round(view.listed)} ms`);
await closeBrowser();
await hub.end();
scripted.end();
process.exit(failed.length ? 1 : 0);
