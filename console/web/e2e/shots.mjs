// Pictures of every page: node e2e/shots.mjs DIRECTORY [page …]
import { mkdirSync } from 'node:fs';
import { closeBrowser, open, sleep } from './hub.mjs';
import { scene } from './scene.mjs';

const [directory = 'shots', ...only] = process.argv.slice(2);
mkdirSync(directory, { recursive: true });
const hub = await scene();

export const pages = {
  servers: async (page) => { await page.goto(`${hub.url}/servers`); await page.locator('tr[data-server=everything]').waitFor(); },
  server: async (page) => { await page.goto(`${hub.url}/servers/everything`); await page.locator('[data-tool]').first().waitFor(); },
  log: async (page) => { await page.goto(`${hub.url}/servers/warehouse?tab=log`); await page.getByRole('log').waitFor(); },
  add: async (page) => { await page.goto(`${hub.url}/servers?add=1`); await page.getByRole('dialog').getByRole('textbox').first().fill('{"mcpServers":{"github":{"command":"npx","args":["-y","@modelcontextprotocol/server-github"],"env":{"GITHUB_TOKEN":"ghp_x","LOG":"1"}}}}'); },
  tools: async (page) => { await page.goto(`${hub.url}/tools`); await page.locator('[data-tool]').first().waitFor(); },
  tool: async (page) => { await page.goto(`${hub.url}/tools/maru/query_bga_database`); await page.locator('[data-arg=generated_sql] textarea').fill('SELECT name, department, hire_date FROM employees LIMIT 6'); await page.keyboard.press('Control+Enter'); await page.locator('[data-verdict]').waitFor(); },
  builder: async (page) => {
    await page.goto(`${hub.url}/tools/new?step=3`);
    await page.locator('[data-column]').first().waitFor({ state: 'attached' });
    await page.locator('[data-code]').click();
    await page.keyboard.type('SELECT u.user_nm, l.max_count\nFROM h_user u\nJOIN h_mcp_tool_limit l ON u.uid = l.target_id\nWHERE u.', { delay: 3 });
    await page.locator('.cm-tooltip-autocomplete').waitFor({ timeout: 3000 }).catch(() => undefined);
  },
  custom: async (page) => { await custom(); await page.goto(`${hub.url}/custom-tools`); await page.locator('[data-custom-tool]').first().waitFor(); },
  run: async (page) => {
    await custom();
    await page.goto(`${hub.url}/tools/headcount/edit?step=4`);
    await page.locator('[data-table=employees]').waitFor({ state: 'attached' });
    await page.keyboard.press('Control+Enter');
    await page.locator('[data-run=ok]').waitFor();
    await page.locator('[data-chart]').scrollIntoViewIfNeeded();
  },
  draft: async (page) => { await custom(); await page.goto(`${hub.url}/tools/headcount/edit?step=3`); await page.locator('[data-has-draft]').waitFor(); },
  restore: async (page) => { await custom(); await page.goto(`${hub.url}/tools/headcount/edit`); await page.getByRole('button', { name: /^(Versions|버전)$/ }).click(); await page.locator('[data-version="1"]').getByRole('button').click(); },
  sources: async (page) => { await page.goto(`${hub.url}/settings?tab=sources`); await page.locator('[data-source]').first().waitFor(); },
  source: async (page) => { await page.goto(`${hub.url}/settings?tab=sources`); await page.locator('[data-source]').first().waitFor(); await page.getByRole('button', { name: /Add source|데이터 소스 추가/ }).click(); await page.locator('[data-setting=url]').waitFor(); },
  limits: async (page) => { await page.goto(`${hub.url}/settings?tab=limits`); await sleep(300); },
  params: async (page) => { await page.goto(`${hub.url}/tools/new?step=2`); await page.getByRole('button', { name: /Add parameter|파라미터 추가/ }).first().click(); },
  play: async (page) => {
    await page.goto(`${hub.url}/play`);
    await page.locator('.ex button').first().click();
    await page.locator('[data-run-state=done]').waitFor({ timeout: 20000 });
    await page.locator('[data-round="2"] summary').click();
  },
  activity: async (page) => { await page.goto(`${hub.url}/activity`); await page.locator('tr[data-call]').first().waitFor(); await sleep(300); },
  call: async (page) => { await page.goto(`${hub.url}/activity`); await page.locator('tr[data-call]').first().click(); await page.locator('dialog h3').first().waitFor(); },
  settings: async (page) => { await page.goto(`${hub.url}/settings`); await page.locator('td.key').first().waitFor(); },
  access: async (page) => { await page.goto(`${hub.url}/settings?tab=access`); await sleep(300); },
  audit: async (page) => { await page.goto(`${hub.url}/settings?tab=audit`); await sleep(400); },
  connect: async (page) => { await page.goto(`${hub.url}/connect`); await hub.mcp('tools/list', {}); await sleep(300); },
  palette: async (page) => { await page.goto(`${hub.url}/servers`); await page.locator('tr[data-server]').first().waitFor(); await page.keyboard.press('Control+k'); await page.keyboard.type('e'); await sleep(300); },
};

const looks = process.env.LOOKS ? JSON.parse(process.env.LOOKS) : [
  { name: 'light', width: 1440 },
  { name: 'dark', width: 1440, dark: true, locale: 'ko-KR' },
  { name: 'light-1024', width: 1024 },
  { name: 'dark-390', width: 390, dark: true },
];
try {
  for (const look of looks) {
    const context = await open({ ...look, height: 900, errors: [] });
    await context.addCookies([{ name: `maru_${hub.port}`, value: await cookie(), url: hub.url }]);
    const page = await context.newPage();
    for (const [name, show] of Object.entries(pages)) {
      if (only.length && !only.includes(name)) continue;
      try {
        await show(page);
      } catch (error) {
        console.error(`${look.name} ${name}: ${error.message.split('\n')[0]}`);
      }
      await sleep(250);
      await page.screenshot({ path: `${directory}/${name}-${look.name}.png` });
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (over > 0) console.error(`${look.name} ${name}: ${over} px too wide`);
    }
    await context.close();
  }
} finally {
  await closeBrowser();
  await hub.end();
}

/** Custom tools in every state. */
async function custom() {
  const count = { name: 'headcount', description_agent: 'Counts the people of each department.', description_user: '부서별 인원', tool_type: 'SQL', source: 'sample', definition: 'SELECT department, count(*) AS people\nFROM employees\nGROUP BY department', params: [] };
  const known = await hub.api('GET', '/api/custom-tools');
  if (known.length) return;
  await hub.api('POST', '/api/custom-tools', { ...count, definition: 'SELECT count(*) AS people FROM employees' });
  await hub.api('PUT', '/api/custom-tools/headcount', count);
  await hub.api('PUT', '/api/custom-tools/headcount/draft', { ...count, definition: `${count.definition}\nORDER BY people DESC` });
  await hub.api('POST', '/api/custom-tools', { name: 'multiply_numbers', description_agent: '두 숫자를 입력받아 곱한 결과를 반환합니다.', tool_type: 'PYTHON', definition: 'num1 * num2', params: [{ param_name: 'num1', param_type: 'NUMBER' }, { param_name: 'num2', param_type: 'NUMBER' }] });
  await hub.api('POST', '/api/custom-tools/multiply_numbers/deactivate');
  await hub.api('PUT', '/api/custom-tools/vacation_left/draft', { description_agent: 'How many days of vacation are left', definition: 'SELECT' });
}

async function cookie() {
  const response = await fetch(`${hub.url}/api/session`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ token: hub.token }) });
  return response.headers.get('set-cookie').match(/=([^;]+)/)[1];
}
