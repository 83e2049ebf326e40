// The pictures of the documents: node e2e/pictures.mjs
import { join } from 'node:path';
import { closeBrowser, everything, Hub, open, root, sleep } from './hub.mjs';

const files = join(everything, '../../../server-filesystem/dist/index.js');
const hub = await Hub.start({ config: 'log: {level: error}\nmcp: {reconnection: {initial-delay-ms: 8000}}\n' });
try {
  const add = (name, config, transportType = 'STDIO', more = {}) => hub.api('POST', '/api/mcp/servers', { name, transportType, config, autoConnect: true, ...more });
  await Promise.all([
    add('everything', { command: 'node', args: [everything, 'stdio'] }),
    add('files', { command: 'node', args: [files, '/tmp'] }),
    add('warehouse', { command: 'ls', args: ['/no/such/warehouse'] }),
    add('search', { url: 'http://127.0.0.1:9/mcp' }, 'HTTP', { autoConnect: false }),
  ]);
  for (let n = 0; n < 14; n++) {
    await hub.mcp('tools/call', { name: 'get_employee_info', arguments: { employee_id: `EMP00${1 + (n % 4)}` } });
    await hub.mcp('tools/call', { name: 'files__list_allowed_directories', arguments: {} }, 'Claude Code', '2.1');
    await hub.mcp('tools/call', { name: 'everything__echo', arguments: { message: `hello ${n}` } });
  }
  const context = await open({ width: 1180, height: 640 });
  await context.request.post(`${hub.url}/api/session`, { data: { token: hub.token } });
  const page = await context.newPage();
  const place = (name) => `${root}/docs/console-${name}.png`;
  await page.goto(`${hub.url}/servers`);
  await page.locator('tr[data-server=everything] [data-status=CONNECTED]').waitFor();
  // The programs are these; the paths of this machine say nothing.
  await page.evaluate(() => {
    for (const [name, tail] of [['everything', 'server-everything'], ['files', 'server-filesystem /tmp']]) {
      const [first, second] = document.querySelector(`tr[data-server=${name}] .ends`).children;
      first.textContent = 'npx -y @modelcontextprotocol/';
      second.textContent = tail;
    }
  });
  await page.screenshot({ path: place('servers') });
  await page.goto(`${hub.url}/tools/new?step=2`);
  await page.getByRole('button', { name: 'Add parameter' }).click();
  await page.locator('fieldset[data-param]').getByLabel('Name').fill('user_name');
  await page.locator('[data-step="1"]').click();
  await page.locator('.form').getByLabel('Name').fill('get_user_daily_limit');
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
