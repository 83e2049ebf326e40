// Journeys of what goes from one hub to another, and into a client.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fixture, Hub } from './hub.mjs';
import { inBothLanguages } from './session.mjs';

const words = {
  'en-US': { all: 'Export everything', run: 'Import', created: 'Added', unchanged: 'unchanged', planned: 'would be created', later: 'once the secrets of its source', copy: 'Copy', wait: 'Waiting for a client', token: 'Create a token' },
  'ko-KR': { all: '모두 내보내기', run: '가져오기', created: '추가함', unchanged: '변경 없음', planned: '만들 예정', later: '비밀 값을 입력하면 확인합니다', copy: '복사', wait: '클라이언트', token: '토큰 만들기' },
};

export const moving = {
  async 'a hub is exported and imported, with its secrets filled in'() {
    const first = await Hub.start();
    await first.api('POST', '/api/mcp/servers', { name: 'files', transportType: 'STDIO', autoConnect: false, config: { command: fixture, args: ['stdio'], env: { KEY: 'canary-secret' } } });
    await first.api('POST', '/api/sources', { name: 'sales', url: 'postgres://reader:canary-word@127.0.0.1:9/sales' });
    await first.api('POST', '/api/custom-tools', { name: 'cities', description_agent: 'Lists the cities.', tool_type: 'SQL', source: 'sales', definition: 'SELECT city FROM shop', params: [] });
    await first.api('PUT', '/api/toolsets/few', { include: ['server:files'] });
    await first.api('PUT', '/api/budgets/month', { period: 'month', tokens: 5000 });
    await inBothLanguages(first, words, async (page, word, locale) => {
      await page.goto(`${first.url}/settings?tab=transfer`);
      const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: word.all }).click()]);
      const text = readFileSync(await download.path(), 'utf8');
      assert.ok(!text.includes('canary'), 'no secret leaves the hub');
      const file = join(first.directory, `export-${locale}.json`);
      // As an editor would leave it.
      writeFileSync(file, `// of the old hub\n${text.trimEnd().replace(/\}$/, ', }')}`);
      const second = await Hub.start();
      await inBothLanguages(second, { [locale]: word }, async (page) => {
        await page.goto(`${second.url}/settings?tab=transfer`);
        await page.locator('input[type=file]').setInputFiles(file);
        const item = (name) => page.locator(`[data-import="${name}"]`);
        await item('files').getByText(word.planned).waitFor();
        await item('cities').getByText(word.later).waitFor();
        assert.ok(await page.getByRole('button', { name: word.run, exact: true }).isDisabled(), 'nothing is imported without the secrets');
        await page.getByLabel('FILES_KEY').fill('canary-secret');
        await page.getByLabel('SALES_PASSWORD').fill('canary-word');
        await page.getByRole('button', { name: word.run, exact: true }).click();
        for (const name of ['files', 'sales', 'cities', 'few', 'month']) await item(name).getByText(word.created).waitFor();
        assert.ok(!(await page.content()).includes('canary-word'));
        // Once more: nothing changes.
        await page.reload();
        await page.locator('input[type=file]').setInputFiles(file);
        await item('sales').getByText(word.unchanged).waitFor();
        await page.locator('input[type=file]').setInputFiles({ name: 'new.yaml', mimeType: 'text/yaml', buffer: Buffer.from('maru: 2\n') });
        await page.getByRole('alert').getByText(/2/).waitFor();
      });
      const exported = async (hub) => JSON.stringify({ ...(await hub.api('GET', '/api/export')), tokens: [] });
      assert.equal(await exported(second), await exported(first));
      await second.end();
    });
    await first.end();
  },

  async 'a client is shown what to put where, with a token'() {
    const hub = await Hub.start();
    await inBothLanguages(hub, words, async (page, word) => {
      await page.goto(`${hub.url}/connect`);
      await page.getByRole('button', { name: 'Cursor', exact: true }).click();
      const tools = page.locator('[data-section="connect.tools"]');
      await tools.getByText(`${hub.url}/mcp`).waitFor();
      assert.match(await tools.locator('a').first().getAttribute('href'), /^cursor:\/\//);
      await page.getByRole('button', { name: 'Claude Desktop', exact: true }).click();
      // The path of this program and of its data directory, not those of somebody else.
      assert.match(await tools.locator('pre').first().innerText(), new RegExp(join(hub.directory, 'data')));
      await page.getByRole('button', { name: 'VS Code', exact: true }).click();
      await page.locator('.options input[type=checkbox]').check();
      await tools.getByText('Bearer YOUR_TOKEN').waitFor();
      await page.locator('.options button').click();
      await tools.getByText(/Bearer maru_/).waitFor();
      const token = (await tools.locator('pre').first().innerText()).match(/Bearer ([\w-]+)/)[1];
      assert.ok((await hub.api('GET', '/api/tools', undefined, token)).length);
    });
    await hub.end();
  },
};
