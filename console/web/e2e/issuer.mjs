// An authorization server where everybody is signed in at once, and a server that wants its tokens.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { freePort, sleep, tools } from './hub.mjs';

const node = ['x64', 'arm64'].map((it) => join(tools, `node_modules/node-linux-${it}/bin/node`)).find(existsSync);

export class Issuer {
  static async start() {
    const issuer = new Issuer();
    const [port, serverPort] = [await freePort(), await freePort()];
    issuer.url = `http://127.0.0.1:${port}`;
    issuer.server = `http://127.0.0.1:${serverPort}/mcp`;
    issuer.programs = [
      spawn(node, [join(tools, 'oidc_provider.mjs'), String(port), issuer.server], { stdio: 'ignore' }),
      spawn(join(tools, 'mcp2/bin/python'), [join(tools, 'signed_in_server.py'), String(serverPort), issuer.url], { stdio: 'ignore' }),
    ];
    for (const url of [issuer.url, issuer.server]) {
      for (let n = 0; !(await fetch(url).then(() => true, () => false)); n++) {
        if (n > 200) throw new Error(`${url} does not answer`);
        await sleep(100);
      }
    }
    return issuer;
  }

  /** Registers a hub, and returns its settings. */
  async settingsFor(port) {
    const body = { application_type: 'native', redirect_uris: [`http://127.0.0.1:${port}/oauth/oidc/callback`], token_endpoint_auth_method: 'client_secret_basic' };
    const response = await fetch(`${this.url}/reg`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
    const client = await response.json();
    return { issuer: this.url, client_id: client.client_id, client_secret: client.client_secret, agent_groups: ['staff'] };
  }

  end() {
    for (const program of this.programs) program.kill();
  }
}
