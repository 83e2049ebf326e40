// An authorization server with rotating refresh tokens and access tokens that live five
// seconds. Whoever comes is signed in at once; /stats counts what happened.
// Usage: node oidc_provider.mjs PORT RESOURCE
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const [port, resource] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;
const stats = { sign_ins: 0, refreshes: 0, refused: {}, clients: 0, revoked: 0 };

const provider = new Provider(issuer, {
  ttl: { AccessToken: 5, Grant: 3600, RefreshToken: 3600, Session: 3600, Interaction: 600, IdToken: 60 },
  scopes: ['openid', 'offline_access', 'mcp:tools', 'profile', 'email'],
  claims: { openid: ['sub', 'groups'], email: ['email'] },
  conformIdTokenClaims: false,
  rotateRefreshToken: true,
  pkce: { required: () => true },
  cookies: { keys: ['only for tests'] },
  interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (_ctx, id) => ({ accountId: id, claims: async () => ({ sub: id, groups: ['staff'], email: `${id}@example.com` }) }),
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: async () => resource,
      useGrantedResource: async () => true,
      getResourceServerInfo: async () => ({
        scope: 'mcp:tools',
        audience: resource,
        accessTokenTTL: 5,
        accessTokenFormat: 'jwt',
      }),
    },
  },
});
provider.on('registration_create.success', () => (stats.clients += 1));
provider.on('grant.success', (ctx) => {
  const kind = ctx.oidc.params.grant_type;
  if (kind === 'authorization_code') stats.sign_ins += 1;
  if (kind === 'refresh_token') stats.refreshes += 1;
});
provider.on('grant.error', (_ctx, error) => {
  stats.refused[error.error] = (stats.refused[error.error] ?? 0) + 1;
  console.error(error.error, error.error_description, error.error_detail);
});
provider.on('server_error', (_ctx, error) => console.error(error));
provider.on('authorization.error', (_ctx, error) => console.error(error.error_description));
for (const kind of ['refresh_token.destroyed', 'access_token.destroyed', 'grant.revoked']) {
  provider.on(kind, () => (stats.revoked += 1));
}

async function interact(request, response) {
  const details = await provider.interactionDetails(request, response);
  const { prompt, params, session } = details;
  if (prompt.name === 'login') {
    return provider.interactionFinished(request, response, { login: { accountId: 'person' } });
  }
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  grant.addResourceScope(resource, 'mcp:tools');
  const grantId = await grant.save();
  return provider.interactionFinished(request, response, { consent: { grantId } });
}

const handle = provider.callback();
createServer((request, response) => {
  if (request.url === '/stats') return response.end(JSON.stringify(stats));
  if (request.url.startsWith('/interaction/')) {
    return interact(request, response).catch((error) => {
      console.error(error);
      response.statusCode = 500;
      response.end();
    });
  }
  return handle(request, response);
}).listen(Number(port), '127.0.0.1', () => console.log('ready'));
