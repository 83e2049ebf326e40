// A host of MCP Apps for a browser, on the host bridge of the specification: shows the page of
// each tool in a frame, and gives it the result of the tool.
import { AppBridge, PostMessageTransport, getToolUiResourceUri } from '@modelcontextprotocol/ext-apps/app-bridge';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const info = { name: 'host', version: '1.0.0' };
const extensions = { 'io.modelcontextprotocol/ui': { mimeTypes: ['text/html;profile=mcp-app'] } };

/** Resolves to what the hub declares and what each page came with. */
window.showApps = async (url, names) => {
  const client = new Client(info, { capabilities: { extensions } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const { tools } = await client.listTools();
  const pages = [];
  for (const name of names) {
    const uri = getToolUiResourceUri(tools.find((it) => it.name === name));
    const [content] = (await client.readResource({ uri })).contents;
    const frame = document.body.appendChild(document.createElement('iframe'));
    frame.name = name;
    frame.sandbox = 'allow-scripts';
    const bridge = new AppBridge(client, info, { serverTools: {} });
    bridge.oninitialized = async () => {
      await bridge.sendToolInput({ arguments: {} });
      await bridge.sendToolResult(await client.callTool({ name, arguments: {} }));
    };
    await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
    frame.srcdoc = content.text;
    pages.push({ uri, read: content.uri, mimeType: content.mimeType, meta: content._meta });
  }
  return { extensions: client.getServerCapabilities().extensions, pages };
};
