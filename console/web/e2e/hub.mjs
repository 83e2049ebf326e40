// A real hub with data of its own, and the pages of a real browser.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { chromium } from 'playwright-core';

export const root = resolve(import.meta.dirname, '../../..');
const target = process.env.CARGO_TARGET_DIR ?? join(root, 'target');
const maru = process.env.MARU ?? join(target, 'debug/maru');
export const fixture = process.env.FIXTURE_SERVER ?? join(target, 'debug/fixture-server');
export const tools = process.env.CLIENT_TOOLS ?? '';
export const everything = join(tools, 'node_modules/@modelcontextprotocol/server-everything/dist/index.js');

export const sleep = (time) => new Promise((done) => setTimeout(done, time));

export async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

export class Hub {
  static async start({ config = '', port, directory, args = [] } = {}) {
    const hub = new Hub();
    hub.directory = directory ?? mkdtempSync(join(tmpdir(), 'maru-e2e-'));
    hub.port = port ?? (await freePort());
    hub.url = `http://127.0.0.1:${hub.port}`;
    hub.file = join(hub.directory, 'maru.yaml');
    if (!directory) writeFileSync(hub.file, config || 'log:\n  level: warn\n');
    await hub.run(args);
    return hub;
  }

  async run(args = []) {
    if (!existsSync(maru)) throw new Error(`there is no ${maru}; run cargo build first`);
    this.out = '';
    this.process = spawn(maru, ['--config', this.file, '--data-dir', join(this.directory, 'data'), '--listen', `127.0.0.1:${this.port}`, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    this.process.stdout.on('data', (text) => (this.out += text));
    this.process.stderr.on('data', (text) => (this.out += text));
    for (let n = 0; !/Stop with/.test(this.out); n++) {
      if (n > 200 || this.process.exitCode !== null) throw new Error(`the hub does not start:\n${this.out}`);
      await sleep(50);
    }
    this.token = readFileSync(join(this.directory, 'data/admin-token'), 'utf8').trim();
    // The link is printed on a terminal only, and this is none.
    const link = spawnSync(maru, ['--config', this.file, '--data-dir', join(this.directory, 'data'), 'console'], { encoding: 'utf8' });
    this.link = link.stdout.match(/http:\S+#code=\S+/)?.[0];
    if (!this.link) throw new Error(`maru console printed no link:\n${link.stdout}${link.stderr}`);
  }

  async stop() {
    if (this.process.exitCode !== null) return;
    const ended = new Promise((done) => this.process.once('exit', done));
    this.process.kill('SIGTERM');
    await ended;
  }

  async end() {
    await this.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }

  async api(method, path, body, token = this.token) {
    const response = await fetch(this.url + path, { method, headers: { 'content-type': 'application/json', ...(token ? { authorization: `Bearer ${token}` } : {}) }, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw Object.assign(new Error(`${method} ${path}: ${response.status} ${text}`), { status: response.status });
    return text ? JSON.parse(text) : undefined;
  }

  async mcp(method, params, name = 'Cursor', version = '1.9') {
    const meta = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {}, 'io.modelcontextprotocol/clientInfo': { name, version } };
    const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2026-07-28', 'mcp-method': method };
    if (params?.name) headers['mcp-name'] = params.name;
    const response = await fetch(`${this.url}/mcp`, { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { ...params, _meta: meta } }) });
    return response.text();
  }
}

let browser;
export async function open({ dark = false, width = 1440, height = 900, locale = 'en-US', errors } = {}) {
  const executablePath = process.env.CHROMIUM ?? '/usr/bin/chromium';
  browser ??= await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update'] });
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? 'dark' : 'light', locale });
  context.setDefaultTimeout(15_000);
  // With DIST=1 the page is that of console/dist, also on a hub that was built before.
  if (process.env.DIST) {
    await context.route('**/assets/v/*/*', (route) => route.fulfill({ path: join(root, 'console/dist/assets', new URL(route.request().url()).pathname.split('/').pop()) }));
  }
  context.on('page', (page) => watch(page, errors));
  return context;
}

function watch(page, errors) {
  if (!errors) return;
  page.on('console', (message) => {
    // The browser itself reports answers that are no success, and streams that end with the hub.
    if (message.type() === 'error' && !/Failed to load resource|ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY/.test(message.text())) errors.push(message.text());
  });
  page.on('pageerror', (error) => errors.push(`page error: ${error.message}`));
  page.on('request', (request) => {
    const { hostname, protocol } = new URL(request.url());
    if (protocol !== 'data:' && protocol !== 'blob:' && hostname !== '127.0.0.1') errors.push(`request to another host: ${request.url()}`);
  });
}

export async function closeBrowser() {
  await browser?.close();
  browser = undefined;
}
