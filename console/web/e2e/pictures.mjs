// The pictures of the documents: node e2e/pictures.mjs
import { closeBrowser, open, root, sleep } from './hub.mjs';
import { scene } from './scene.mjs';

const hub = await scene();
try {
  const context = await open({ width: 1180, height: 640 });
  await context.request.post(`${hub.url}/api/session`, { data: { token: hub.token } });
  const page = await context.newPage();
  const place = (name) => `${root}/docs/console-${name}.png`;
  await page.goto(`${hub.url}/servers`);
  await page.locator('tr[data-server=everything] [data-status=CONNECTED]').waitFor();
  // Where this runs is nobody's business.
  await page.evaluate(() => {
    for (const [name, head, tail] of [['everything', 'npx -y @modelcontextprotocol/', 'server-everything'], ['fixture', '', 'uvx mcp-server-git'], ['reports', '', '/opt/reports/mcp stdio']]) {
      const [first, second] = document.querySelector(`tr[data-server=${name}] .ends`).children;
      first.textContent = head;
      second.textContent = tail;
    }
  });
  await page.screenshot({ path: place('servers') });
  await page.goto(`${hub.url}/tools/new?step=2`);
  await page.getByRole('button', { name: 'Add parameter' }).click();
  await page.locator('fieldset[data-param]').getByLabel('Name').fill('user_name');
  await page.locator('[data-step="1"]').click();
  await page.getByLabel('Name').fill('get_user_daily_limit');
  await page.getByLabel('Description for the model').fill('특정 사용자의 일일 제한량을 조회합니다.');
  await page.setViewportSize({ width: 1280, height: 680 });
  await page.locator('[data-step="3"]').click();
  await page.locator('[data-table=h_user]').waitFor();
  await page.locator('[data-code]').click();
  await page.keyboard.type("SELECT u.user_nm, l.max_count\nFROM h_user u\nJOIN h_mcp_tool_limit l ON u.uid = l.target_id\nWHERE u.user_nm = :user_name AND l.target_type = 'USER'", { delay: 3 });
  await page.keyboard.press('Escape');
  await page.locator('.dock [data-arg=user_name]').fill('hong');
  await page.keyboard.press('Control+Enter');
  await page.locator('[data-run=ok]').waitFor();
  await sleep(300);
  await page.screenshot({ path: place('builder') });
  await context.close();
} finally {
  await closeBrowser();
  await hub.end();
}
