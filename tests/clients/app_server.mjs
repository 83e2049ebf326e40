// An MCP server with a user interface (MCP Apps) on the packages of the specification. Its page
// has the same address in every server, shows the result of its tool, and calls another tool
// that only pages may call. Usage: app_server.mjs NAME, on stdio.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { RESOURCE_MIME_TYPE } from '@modelcontextprotocol/ext-apps';
import { registerAppResource, registerAppTool } from '@modelcontextprotocol/ext-apps/server';
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';

const name = process.argv[2];
const address = 'ui://panel/main.html';
const library = readFileSync(fileURLToPath(import.meta.resolve('@modelcontextprotocol/ext-apps/app-with-deps'))).toString('base64');
const page = `<!doctype html><meta charset="utf-8">
<style>body { font: 16px sans-serif; padding: 16px; background: ${name === 'one' ? '#e7f5ee' : '#eaf0fb'} }</style>
<h1>${name}</h1><p id="result">waiting</p><p id="called">not called</p>
<script type="module">
  import { App } from 'data:text/javascript;base64,${library}';
  const text = (result) => result.content[0].text;
  const app = new App({ name: 'panel of ${name}', version: '1.0.0' });
  app.ontoolresult = async (result) => {
    document.querySelector('#result').textContent = text(result);
    const called = await app.callServerTool({ name: 'count_${name}', arguments: {} });
    document.querySelector('#called').textContent = text(called);
  };
  await app.connect();
</script>`;

const server = new McpServer({ name, version: '1.0.0' });
const answer = (text) => async () => ({ content: [{ type: 'text', text }] });
registerAppTool(server, 'show_panel', { description: 'Shows a panel', _meta: { ui: { resourceUri: address } } }, answer(`shown by ${name}`));
registerAppTool(server, `count_${name}`, { description: 'Counts', _meta: { ui: { resourceUri: address, visibility: ['app'] } } }, answer(`counted by ${name}`));
const csp = { connectDomains: [`https://${name}.example`] };
registerAppResource(server, 'panel', address, {}, async (uri) => ({ contents: [{ uri: uri.href, mimeType: RESOURCE_MIME_TYPE, text: page, _meta: { ui: { csp } } }] }));
await server.connect(new StdioServerTransport());
