// Signs in by a TypeScript SDK, and prints the link that a person would open.
// Usage: sign_in_client.mjs URL PORT VERSION
import { createServer } from 'node:http';

const [url, port, version] = process.argv.slice(2);
const modules = version === '2'
  ? ['@modelcontextprotocol/client']
  : ['auth', 'index', 'streamableHttp'].map((it) => `@modelcontextprotocol/sdk/client/${it}.js`);
const loaded = await Promise.all(modules.map((it) => import(it)));
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = Object.assign({}, ...loaded);
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
  saveDiscoveryState: (it) => { kept.discovery = it; },
  discoveryState: () => kept.discovery,
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
await first.finishAuth(returned.get('code'), returned.get('iss') ?? undefined);
const client = new Client({ name: 'second', version: '1' });
await client.connect(transport());
const { tools } = await client.listTools();
console.log(JSON.stringify(tools.map((it) => it.name)));
await client.close();
process.exit(0);
