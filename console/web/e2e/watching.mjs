// Journeys of what was called: search by text, figures of what matches, who may call how often.
import assert from 'node:assert/strict';
import { Hub } from './hub.mjs';
import { model } from './model.mjs';
import { inBothLanguages } from './session.mjs';

const words = {
  'en-US': { find: 'Search tool, client, arguments and error', sum: /^(\d+) calls?,/, scope: 'May use', day: 'Calls per day', rate: /5 calls per day/, order: 'Requests' },
  'ko-KR': { find: '도구, 클라이언트, 인수, 오류 검색', sum: /^호출 (\d+)건/, scope: '사용 범위', day: '하루 호출 수', rate: /하루 5회/, order: '요청' },
};

export const watching = {
  async 'a live call is found by its arguments, and the figures follow every filter'() {
    const hub = await Hub.start();
    await hub.mcp('tools/call', { name: 'get_employee_info', arguments: { employee_id: 'EMP001' } });
    await hub.mcp('tools/call', { name: 'search_docs', arguments: { query: 5 } });
    await inBothLanguages(hub, words, async (page, word) => {
      const figures = async (count) => {
        await page.waitForFunction(([text, wanted]) => new RegExp(text).exec(document.querySelector('[data-usage-sum]')?.textContent ?? '')?.[1] === wanted, [word.sum.source, String(count)]);
      };
      await page.goto(`${hub.url}/activity?outcome=error`);
      await page.locator('tr[data-call]').waitFor();
      await figures(1);
      await page.goto(`${hub.url}/activity`);
      await page.locator('tr[data-call]').first().waitFor();
      const before = await page.locator('tr[data-call]').count();
      await figures(before);
      // Only the arguments have this text, and they do not come with the event.
      await page.getByLabel(word.find).fill('EMP004');
      const rows = page.locator('tr[data-call]');
      const known = (await hub.api('GET', '/api/calls?text=EMP004')).calls.length;
      await page.waitForFunction((count) => document.querySelectorAll('tr[data-call]').length === count, known);
      await hub.mcp('tools/call', { name: 'get_employee_info', arguments: { employee_id: 'EMP004' } });
      await page.waitForFunction((count) => document.querySelectorAll('tr[data-call]').length === count, known + 1);
      assert.match(await rows.first().innerText(), /get_employee_info/);
      await figures(known + 1);
      // Between two moments that lie before all of this.
      await page.goto(`${hub.url}/activity?range=between&since=${Date.now() - 86_400_000}&until=${Date.now() - 43_200_000}`);
      await page.waitForFunction(() => !document.querySelector('[data-usage-sum]')?.textContent.match(/[1-9]\d* (call|건)/));
    });
    await hub.end();
  },

  async 'a token has servers, tools and a limit, and its list says so'() {
    const hub = await Hub.start();
    await inBothLanguages(hub, words, async (page, word, locale) => {
      const name = `both-${locale.slice(0, 2)}`;
      await page.goto(`${hub.url}/settings?tab=access`);
      const form = page.locator('form.form');
      await form.locator('input.mono').first().fill(name);
      await form.getByLabel(word.scope).selectOption('both');
      await form.locator('.pick label', { hasText: 'maru' }).first().click();
      await form.locator('input[type=search]').fill('search_docs');
      await form.locator('.pick label', { hasText: 'search_docs' }).click();
      await form.getByLabel(word.day).fill('5');
      await form.locator('button.solid').click();
      const token = page.locator(`[data-token=${name}]`);
      await token.locator('[data-rate]').getByText(word.rate).waitFor();
      const made = (await hub.api('GET', '/api/tokens')).find((it) => it.name === name);
      assert.deepEqual([made.servers, made.tools], [['maru'], ['search_docs']]);
    });
    await hub.end();
  },

  async 'models are sorted by what they cost, in time and otherwise'() {
    const scripted = await model([{ text: 'ok' }]);
    const entry = (name) => `  - {name: ${name}, model: scripted, base_url: "${scripted.url}"}\n`;
    const hub = await Hub.start({ config: `log: {level: error}\nmodels:\n${entry('often')}${entry('once')}` });
    const ask = (name) => hub.api('POST', '/v1/chat/completions', { model: name, messages: [{ role: 'user', content: 'hi' }] });
    for (const name of ['often', 'often', 'often', 'once']) await ask(name);
    await inBothLanguages(hub, words, async (page, word) => {
      await page.goto(`${hub.url}/settings?tab=usage&days=1`);
      const rows = page.locator('[data-usage-row]');
      await page.locator('[data-usage-row=once]').waitFor();
      await page.locator('th').getByRole('button', { name: word.order, exact: true }).click();
      assert.deepEqual(await rows.evaluateAll((all) => all.map((it) => it.dataset.usageRow)), ['often', 'once']);
      assert.match(page.url(), /sort=requests/);
    });
    await hub.end();
    scripted.end();
  },
};
