// Signs in by the TypeScript SDK, and prints the link that a person would open.
// Usage: sign_in_client.mjs URL PORT
import { createServer } from 'node:http';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [url, port] = process.argv.slice(2);
const redirectUrl = `http://localhost:${port}/callback`;
const kept = {};
const authProvider = {
  redirectUrl,
  clientMetadata: { client_name: 'TypeScript client', redirect_uris: [redirectUrl], grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'], token_endpoint_auth_method: 'client_secret_post' },
  state: () => 'a state',
  clientInformation: () => kept.client,
  saveClientInformation: (it) => { kept.client = it; },
  tokens: () => kept.tokens,
  saveTokens: (it) => { kept.tokens = it; },
  saveCodeVerifier: (it) => { kept.verifier = it; },
  codeVerifier: () => kept.verifier,
  redirectToAuthorization: (it) => console.log(`open ${it}`),
};
const code = new Promise((resolve) => {
  const server = createServer((request, response) => {
    response.end('Done.');
    server.close();
    resolve(new URL(request.url, redirectUrl).searchParams);
  }).listen(Number(port));
});
const transport = () => new StreamableHTTPClientTransport(new URL(url), { authProvider });
const first = transport();
try {
  await new Client({ name: 'first', version: '1' }).connect(first);
  throw new Error('maru asked for no sign-in');
} catch (error) {
  if (!(error instanceof UnauthorizedError)) throw error;
}
const returned = await code;
if (returned.get('state') !== 'a state') throw new Error('the state differs');
await first.finishAuth(returned.get('code'));
const client = new Client({ name: 'second', version: '1' });
await client.connect(transport());
const { tools } = await client.listTools();
console.log(JSON.stringify(tools.map((it) => it.name)));
await client.close();
process.exit(0);
