// axe on what opens over pages, on pages before one is signed in, and in Korean.
import assert from 'node:assert/strict';
import { Hub, open, sleep } from './hub.mjs';
import { errors, faultsOf, signedIn } from './session.mjs';

const looks = [1440, 1024, 390].flatMap((width) => [{ width, dark: false }, { width, dark: true }]);
const name = (look) => `${look.width} ${look.dark ? 'dark' : 'light'}${look.locale ? ' Korean' : ''}`;

export const accessible = {
  async 'axe on drawers, the palette, the log and the steps of the builder'(hub) {
    const custom = { name: 'headcount', description_agent: 'Counts the people of each department.', tool_type: 'SQL', source: 'sample', definition: 'SELECT department, count(*) AS people FROM employees GROUP BY department', params: [] };
    await hub.api('POST', '/api/custom-tools', custom).catch((error) => assert.equal(error.status, 409));
    const places = {
      '/settings?tab=usage': (page) => page.locator('h2').first().waitFor(),
      '/servers/warehouse?tab=log': (page) => page.getByRole('log').waitFor(),
      '/tools/new?step=4': (page) => page.locator('h1').first().waitFor(),
      '/tools/headcount/edit': (page) => page.locator('h1').first().waitFor(),
      '/tools/headcount/edit?step=4': (page) => page.locator('h1').first().waitFor(),
      '/activity': async (page) => {
        await page.locator('tr[data-call]').first().click();
        await page.getByRole('dialog').locator('h3').first().waitFor();
      },
      '/servers/fixture?tab=library': async (page) => {
        await page.locator('[data-entry]').first().click();
        await page.getByRole('dialog').waitFor();
      },
      '/tools': async (page) => {
        await page.locator('[data-tool]').first().waitFor();
        await page.keyboard.press('Control+k');
        await page.getByRole('dialog').waitFor();
        await page.keyboard.type('e');
      },
      '/servers': async (page) => {
        await page.locator('tr[data-server]').first().waitFor();
        await page.keyboard.press('?');
        await page.getByRole('dialog').waitFor();
      },
    };
    await everyLook(hub, places, [...looks, ...looks.filter((it) => it.width !== 1024).map((it) => ({ ...it, locale: 'ko-KR' }))]);
  },

  async 'axe on every page in Korean'(hub) {
    const pages = ['/servers', '/servers/everything', '/servers?add=1', '/tools', '/tools/maru/query_bga_database', '/tools/new', '/custom-tools', '/play', '/activity', '/settings', '/settings?tab=sources', '/settings?tab=models', '/settings?tab=access', '/settings?tab=limits', '/settings?tab=transfer', '/settings?tab=usage', '/settings?tab=audit', '/connect'];
    const places = Object.fromEntries(pages.map((it) => [it, (page) => page.locator('h1').first().waitFor()]));
    await everyLook(hub, places, [{ width: 1440, dark: false, locale: 'ko-KR' }, { width: 390, dark: true, locale: 'ko-KR' }]);
  },

  async 'axe before anybody is signed in and before anything is connected'() {
    const closed = await Hub.start({ config: 'require_token: true\nlog:\n  level: error\n' });
    const empty = await Hub.start();
    const found = [];
    for (const look of [...looks, { width: 390, dark: false, locale: 'ko-KR' }]) {
      for (const hub of [closed, empty]) {
        const context = hub === closed ? await open({ errors, ...look }) : await signedIn(hub, look);
        const page = await context.newPage();
        await page.goto(hub.url);
        await page.locator('h1').first().waitFor();
        await sleep(200);
        for (const it of await faultsOf(page)) found.push(`${hub === closed ? 'sign-in' : 'first run'} ${name(look)}: ${it}`);
        await context.close();
      }
    }
    await closed.end();
    await empty.end();
    assert.deepEqual(found, []);
  },

  async 'names that differ at their end are told apart at every width'() {
    const hub = await Hub.start();
    const target = (end) => ({ command: 'node', args: [`/opt/company/tools/servers/warehouse-and-logistics/dist/packages/${end}.js`] });
    for (const end of ['inbound', 'outbound']) await hub.api('POST', '/api/mcp/servers', { name: `warehouse-and-logistics-of-the-northern-region-${end}`, transportType: 'STDIO', autoConnect: false, config: target(end) });
    for (const width of [1440, 1024, 390]) {
      const context = await signedIn(hub, { width });
      const page = await context.newPage();
      await page.goto(`${hub.url}/servers`);
      const rows = page.locator('tr[data-server]');
      await rows.nth(1).waitFor();
      // What is seen: the text that lies inside its box.
      const seen = await rows.evaluateAll((all) => all.map((row) => {
        const visible = [];
        for (const part of row.querySelectorAll('.ends > *, a.name')) {
          const text = part.firstChild;
          if (!text || text.nodeType !== Node.TEXT_NODE) continue;
          const box = part.getBoundingClientRect();
          const range = document.createRange();
          let shown = '';
          for (let at = 0; at < text.length; at++) {
            range.setStart(text, at);
            range.setEnd(text, at + 1);
            const letter = range.getBoundingClientRect();
            if (letter.right <= box.right + 1 && letter.left >= box.left - 1 && letter.width) shown += text.data[at];
          }
          visible.push(shown);
        }
        return visible.join(' ');
      }));
      assert.notEqual(seen[0], seen[1], `${width}: ${seen[0]}`);
      await context.close();
    }
    await hub.end();
  },
};

async function everyLook(hub, places, looks) {
  const found = [];
  for (const look of looks) {
    const context = await signedIn(hub, look);
    const page = await context.newPage();
    for (const [place, ready] of Object.entries(places)) {
      await page.goto(hub.url + place);
      await ready(page).catch((error) => {
        throw new Error(`${place} ${name(look)}: ${error.message}`);
      });
      await sleep(200);
      for (const it of await faultsOf(page)) found.push(`${place} ${name(look)}: ${it}`);
    }
    await context.close();
  }
  assert.deepEqual(found, []);
}
