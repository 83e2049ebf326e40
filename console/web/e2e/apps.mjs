// Pages of two servers with the same address (MCP Apps), in a host in a real browser. A picture
// is kept if PICTURES names a directory.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { build } from 'vite';
import { Hub, open, tools as clientTools } from './hub.mjs';

export async function apps(errors) {
  const host = await serveHost();
  const hub = await Hub.start({ config: `log:\n  level: warn\nhttp:\n  allowed_origins: [${host.origin}]\n` });
  for (const name of ['one', 'two']) {
    const config = { command: process.execPath, args: [join(clientTools, 'app_server.mjs'), name] };
    await hub.api('POST', '/api/mcp/servers', { name, transportType: 'STDIO', config, autoConnect: true });
  }
  const context = await open({ errors, width: 900, height: 420 });
  const page = await context.newPage();
  await page.goto(host.origin);
  const shown = await page.evaluate((url) => window.showApps(url, ['one__show_panel', 'two__show_panel']), `${hub.url}/mcp`);
  assert.deepEqual(Object.keys(shown.extensions), ['io.modelcontextprotocol/ui']);
  for (const [at, name] of ['one', 'two'].entries()) {
    const uri = `ui://${name}/panel/main.html`;
    const csp = { connectDomains: [`https://${name}.example`] };
    assert.deepEqual(shown.pages[at], { uri, read: uri, mimeType: 'text/html;profile=mcp-app', meta: { ui: { csp } } });
    const frame = page.frameLocator(`iframe[name=${name}__show_panel]`);
    await frame.getByText(`shown by ${name}`).waitFor();
    await frame.getByText(`counted by ${name}`).waitFor();
  }
  if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, 'apps.png') });
  await context.close();
  host.server.close();
  await hub.end();
}

/** The page of the host, bundled with the packages that it imports. */
async function serveHost() {
  const lib = { entry: join(clientTools, 'app_host.mjs'), formats: ['es'], fileName: 'host' };
  const built = await build({ root: clientTools, configFile: false, logLevel: 'error', build: { write: false, lib } });
  const { code } = [built].flat()[0].output[0];
  const style = 'iframe { width: 400px; height: 300px; border: 1px solid #888; margin: 8px }';
  const html = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><style>${style}</style><body><script type="module" src="/host.js"></script>`;
  const server = createServer((request, response) => {
    const isScript = request.url === '/host.js';
    response.setHeader('content-type', isScript ? 'text/javascript' : 'text/html');
    response.end(isScript ? code : html);
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return { server, origin: `http://127.0.0.1:${server.address().port}` };
}
