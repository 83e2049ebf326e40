// The console in a real browser, on the real hub with real servers: node e2e/run.mjs [name …]
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { accessible } from './accessible.mjs';
import { apps } from './apps.mjs';
import { closeBrowser, everything, fixture, freePort, Hub, open, sleep } from './hub.mjs';
import { Issuer } from './issuer.mjs';
import { model } from './model.mjs';
import { moving } from './moving.mjs';
import { config, scene } from './scene.mjs';
import { errors, faultsOf, signedIn } from './session.mjs';
import { trying } from './trying.mjs';
import { watching } from './watching.mjs';

const wanted = process.argv.slice(2);
const status = (page, server, state) => page.locator(`tr[data-server=${server}] [data-status=${state}]`).waitFor();
const editor = (page) => page.locator('[data-code]');
/** What the editor holds, line breaks and all. */
const heldText = (page) => page.evaluate(() => document.querySelector('.cm-content').cmTile?.view?.state.doc.toString() ?? [...document.querySelectorAll('.cm-line')].map((it) => it.textContent).join('\n'));
/** Types a text in place of what is in the editor. */
async function typeText(page, text, delay) {
  await editor(page).click();
  await page.keyboard.press('Control+a');
  await page.keyboard.press('Delete');
  await page.keyboard.type(text, { delay });
  assert.equal(await heldText(page), text, `typed with ${delay} ms a key`);
  await page.keyboard.press('Escape');
}
const suggestions = async (page) => {
  await page.locator('.cm-tooltip-autocomplete li').first().waitFor();
  return (await page.locator('.cm-tooltip-autocomplete li .cm-completionLabel').allInnerTexts()).map((it) => it.trim());
};
const pasteInto = (page, text) => page.getByRole('dialog').getByRole('textbox').first().fill(text);

const tests = {
  async 'the first ten minutes'() {
    const hub = await Hub.start();
    const context = await open({ errors });
    const page = await context.newPage();
    // 0: the printed link signs in once.
    await page.goto(hub.link);
    await page.getByRole('heading', { name: 'Nothing is connected yet' }).waitFor();
    assert.equal(new URL(page.url()).hash, '', 'the code does not stay in the address');
    const again = await open({});
    const used = await again.request.post(`${hub.url}/api/session`, { data: { code: hub.link.split('code=')[1] } });
    assert.equal(used.status(), 403, 'a code works once');
    await again.close();
    // 1: the sample.
    await page.getByRole('button', { name: 'Load the sample' }).click();
    await page.locator('[data-tool=get_user_daily_limit]').waitFor();
    // 3: gets it wrong once, sees the program's own words, corrects it in place.
    await page.goto(`${hub.url}/servers`);
    await page.getByRole('heading', { name: 'Nothing is connected yet' }).waitFor();
    await page.keyboard.press('n');
    await pasteInto(page, 'ls /no/such/place');
    await page.getByRole('button', { name: 'Test' }).click();
    await page.locator('[data-trial=failed]').waitFor();
    assert.match(await page.locator('[data-trial=failed]').innerText(), /exit code 2.*No such file/s);
    // 1 to 3: pastes what a README says.
    await pasteInto(page, JSON.stringify({ mcpServers: { 'Every Thing': { command: 'node', args: [everything, 'stdio'], env: { API_TOKEN: 'canary' } } } }));
    assert.equal(await page.getByLabel('API_TOKEN', { exact: true }).getAttribute('type'), 'password');
    await page.getByRole('button', { name: 'Test' }).click();
    await page.locator('[data-trial=ok]').waitFor();
    assert.match(await page.locator('[data-trial=ok]').innerText(), /echo/);
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await status(page, 'every-thing', 'CONNECTED');
    // 4: tries a tool.
    await page.getByRole('link', { name: 'Tools', exact: true }).click();
    await page.locator('[data-tool=query_bga_database]').getByRole('link', { name: 'Try' }).click();
    await page.locator('[data-arg=generated_sql] textarea').fill('SELECT name, department FROM employees LIMIT 3');
    await page.keyboard.press('Control+Enter');
    await page.locator('[data-verdict=ok]').waitFor();
    assert.equal(await page.locator('[data-result=table] tbody tr').count(), 3);
    // 5 to 8: makes a tool.
    await page.goto(`${hub.url}/tools/new`);
    await page.getByLabel('Name').fill('staff_of');
    await page.getByLabel('Description for the model').fill('Lists who works in a department of the company.');
    await page.getByRole('button', { name: /Logic/ }).first().click();
    await page.locator('[data-table=employees]').waitFor();
    await editor(page).click();
    await page.keyboard.type('SELECT name FROM employees WHERE department = :team');
    await page.keyboard.press('Escape');
    await page.locator('.cm-lintRange-error').hover();
    await page.getByRole('button', { name: 'Add parameter “team”' }).click();
    await page.locator('.dock [data-arg=team]').fill('Engineering');
    await page.keyboard.press('Control+Enter');
    await page.locator('[data-run=ok]').waitFor();
    await page.getByRole('button', { name: /Save and activate/ }).click();
    await page.locator('[data-saved]').waitFor();
    assert.match(await hub.mcp('tools/call', { name: 'staff_of', arguments: { team: 'Engineering' } }), /김민준/, 'it is offered at once');
    // 8: watches rounds.
    await page.getByRole('link', { name: 'Playground' }).click();
    await page.locator('.ex button').first().click();
    await page.locator('[data-run-state=done]').waitFor();
    assert.match(await page.locator('[data-round="1"] summary').innerText(), /search_docs.*OK/s);
    // 9: connects a client.
    await page.getByRole('link', { name: 'Connect a client' }).click();
    await page.getByText('Waiting for a client').waitFor();
    await hub.mcp('tools/list', {}, 'Cursor', '1.9');
    await page.locator('[data-connected=true]').getByText(/Cursor 1.9/).waitFor();
    await context.close();
    await hub.end();
  },

  async 'every state of a server'(hub) {
    const context = await signedIn(hub);
    const page = await context.newPage();
    await page.goto(`${hub.url}/servers`);
    await status(page, 'everything', 'CONNECTED');
    await status(page, 'warehouse', 'FAILED');
    await status(page, 'swagger-agent', 'PENDING');
    await status(page, 'slack', 'DISABLED');
    assert.equal(await page.locator('tr[data-server]').first().getAttribute('data-server'), 'warehouse', 'failed ones come first');
    assert.match(await page.locator('tr.why').first().innerText(), /exit code 2.*attempt/s);
    await page.getByRole('button', { name: 'Show log' }).first().click();
    assert.match(await page.locator('tr.why pre').innerText(), /No such file/);
    const canary = await page.content();
    assert.ok(!canary.includes('canary-secret'), 'secrets are not on the page');
    const act = (name) => page.locator(`tr[data-server=${name}] button`).click();
    await act('fixture');
    await status(page, 'fixture', 'DISCONNECTED');
    await act('fixture');
    await page.locator('tr[data-server=fixture] [data-status=CONNECTED]').waitFor();
    await act('swagger-agent');
    await status(page, 'swagger-agent', 'FAILED');
    await page.locator('[data-find]').fill('everything');
    assert.equal(await page.locator('tr[data-server]').count(), 1);
    await page.locator('[data-find]').fill('zzz');
    await page.getByText('No server matches “zzz”').waitFor();
    await page.getByRole('button', { name: 'Clear the filter' }).click();
    // The row is there while it connects: a server that takes its time.
    await page.keyboard.press('Escape');
    await page.goto(`${hub.url}/servers?add=1`);
    await pasteInto(page, 'sleep 60');
    await page.getByLabel('Name').first().fill('slowpoke');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await status(page, 'slowpoke', 'CONNECTING');
    await page.goto(`${hub.url}/servers/slowpoke`);
    await page.getByRole('button', { name: 'Remove' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
    await page.locator('tr[data-server=slowpoke]').waitFor({ state: 'detached' });
    // Messages and settings.
    await page.goto(`${hub.url}/servers/everything?tab=messages`);
    await page.getByText('tools/list').first().waitFor();
    await page.goto(`${hub.url}/servers/warehouse?tab=settings`);
    await page.getByLabel('WAREHOUSE_TOKEN', { exact: true }).waitFor();
    assert.equal(await page.getByLabel('WAREHOUSE_TOKEN', { exact: true }).inputValue(), '***');
    await page.getByLabel('Command').fill(`${fixture} stdio`);
    await page.getByLabel('Command').blur();
    await page.getByRole('button', { name: 'Save and reconnect' }).click();
    await page.locator('.who [data-status=CONNECTED]').waitFor();
    await context.close();
  },

  async 'warnings are read and accepted before a program starts'(hub) {
    const context = await signedIn(hub);
    const page = await context.newPage();
    const consents = [];
    page.on('request', (request) => {
      if (/\/api\/mcp\/(test|servers)/.test(request.url()) && request.method() !== 'GET') consents.push(`${request.method()} ${request.postDataJSON()?.acceptWarnings ?? false}`);
    });
    const names = async () => (await hub.api('GET', '/api/mcp/servers')).map((it) => it.name);
    const warnings = page.locator('[data-warnings]');
    await page.goto(`${hub.url}/servers?add=1`);
    await pasteInto(page, `bash -c 'exec ${fixture} stdio'`);
    await page.getByLabel('Name').first().fill('shelly');
    await page.getByRole('button', { name: 'Test', exact: true }).click();
    await warnings.getByText('bash is a shell. It runs any command it is given.').waitFor();
    await page.getByRole('button', { name: 'Test anyway' }).click();
    await page.locator('[data-trial=ok]').waitFor();
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.getByRole('button', { name: 'Add anyway' }).waitFor();
    assert.ok(!(await names()).includes('shelly'), 'nothing is added before the warning is accepted');
    // Consent is for what was warned of, not for what is typed afterwards.
    await page.getByLabel('Command', { exact: true }).fill(`sh -c 'exec ${fixture} stdio'`);
    await page.getByLabel('Command', { exact: true }).blur();
    await warnings.waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    await warnings.getByText('sh is a shell.').waitFor();
    await page.getByRole('button', { name: 'Add anyway' }).click();
    await status(page, 'shelly', 'CONNECTED');
    assert.deepEqual(consents, ['POST false', 'POST true', 'POST false', 'POST false', 'POST true']);
    // The server's page repeats the warning; a change asks again.
    await page.goto(`${hub.url}/servers/shelly?tab=settings`);
    await warnings.getByText('sh is a shell.').waitFor();
    await page.getByLabel('Command', { exact: true }).fill(`bash -c 'exec ${fixture} stdio'`);
    await page.getByLabel('Command', { exact: true }).blur();
    await page.getByRole('button', { name: 'Save and reconnect' }).click();
    await page.getByText('Not saved yet.').waitFor();
    assert.equal((await hub.api('GET', '/api/mcp/servers/shelly')).config.command, 'sh');
    await page.getByRole('button', { name: 'Save anyway' }).click();
    await page.getByText('Saved. The connection was made anew.').waitFor();
    await page.getByText('bash is a shell.').waitFor();
    assert.equal((await hub.api('GET', '/api/mcp/servers/shelly')).config.command, 'bash');
    // An imported file.
    await page.goto(`${hub.url}/settings?tab=transfer`);
    const file = { mcpServers: { plain: { command: fixture, args: ['stdio'] }, imported: { command: 'bash', args: ['-c', `exec ${fixture} stdio`] } } };
    await page.locator('input[type=file]').setInputFiles({ name: 'mcp.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(file)) });
    await page.getByRole('button', { name: 'Add anyway' }).click();
    await warnings.waitFor({ state: 'detached' });
    assert.ok(!(await names()).includes('imported'), 'nothing is imported before it was shown');
    await page.getByRole('button', { name: 'Import', exact: true }).click();
    await page.getByText('Added', { exact: true }).nth(1).waitFor();
    assert.ok((await names()).includes('imported'));
    await context.close();
    // Each sentence of the hub is known in Korean.
    const korean = await signedIn(hub, { locale: 'ko-KR' });
    const other = await korean.newPage();
    await other.goto(`${hub.url}/servers?add=1`);
    await pasteInto(other, JSON.stringify({
      mcpServers: {
        'k-shell': { command: 'bash', args: ['-c', 'true'], env: { KUBECONFIG: '/nowhere' } },
        'k-code': { command: 'python3', args: ['-Ic', 'pass'], env: { LD_PRELOAD: '/nowhere.so' } },
        'k-container': { command: 'docker', args: ['run', '-v', '/:/host', 'image'] },
      },
    }));
    await other.getByRole('button', { name: '서버 3개 추가' }).click();
    await other.getByRole('button', { name: '그래도 추가' }).nth(2).waitFor();
    const sentences = await other.locator('[data-warnings] li').allInnerTexts();
    assert.equal(sentences.length, 5, sentences.join('\n'));
    for (const sentence of sentences) assert.match(sentence, /[가-힣]+니다\.$/);
    await korean.close();
    for (const name of ['shelly', 'plain', 'imported']) await hub.api('DELETE', `/api/mcp/servers/${name}`);
  },

  async 'a server shows its program, version, trust and attempts'(hub) {
    await hub.api('POST', '/api/mcp/servers', { name: 'bounded', transportType: 'STDIO', config: { command: fixture, args: ['stdio'] }, autoConnect: true });
    await hub.api('POST', '/api/mcp/servers', { name: 'lost', transportType: 'STDIO', config: { command: 'ls', args: ['/no/such/place'] }, autoConnect: true });
    const context = await signedIn(hub);
    const page = await context.newPage();
    await page.goto(`${hub.url}/servers/bounded`);
    const { program } = await hub.api('GET', '/api/mcp/servers/bounded');
    const usage = (id) => page.locator(`[data-usage=${id}]`);
    await usage('memory').getByText(/^[\d.,]+ [KM]iB$/).waitFor();
    for (const id of ['memory', 'cpu', 'processes']) {
      const limit = program.limits[{ memory: 'memoryBytes', cpu: 'cpuPercent', processes: 'processes' }[id]];
      assert.match(await usage(id).innerText(), limit === null ? /no limit/ : /\d of |% of |B of /, id);
    }
    await usage('processes').getByText('1', { exact: true }).waitFor();
    await page.locator('[data-program]').getByText(program.limits.enforcedBy === 'cgroup' ? 'The kernel enforces' : 'maru enforces').waitFor();
    await page.locator('[data-trust]').getByText('Withhold').waitFor();
    assert.equal(await page.locator('[data-attempts]').count(), 0, 'it is not lost');
    // What can be changed.
    await page.getByRole('tab', { name: 'Settings' }).click();
    await page.getByLabel('Protocol version').selectOption('2025-06-18');
    await page.getByLabel('Directory').fill('/');
    await page.getByRole('radio', { name: 'Allow' }).click();
    await page.getByRole('button', { name: 'Save and reconnect' }).click();
    await page.locator('[data-version]').getByText('only 2025-06-18 allowed').waitFor();
    await page.locator('[data-version] .mono').getByText('2025-06-18').waitFor();
    await page.locator('[data-cwd]').getByText('/', { exact: true }).waitFor();
    await page.locator('[data-trust]').getByText('Allow').waitFor();
    const changed = await hub.api('GET', '/api/mcp/servers/bounded');
    assert.deepEqual([changed.requiredProtocolVersion, changed.trust, changed.config.cwd], ['2025-06-18', 'follow', '/']);
    await page.getByLabel('Protocol version').selectOption('');
    await page.getByLabel('Directory').fill('');
    await page.getByRole('button', { name: 'Save and reconnect' }).click();
    await page.locator('[data-cwd]').waitFor({ state: 'detached' });
    const freed = await hub.api('GET', '/api/mcp/servers/bounded');
    assert.deepEqual([freed.requiredProtocolVersion, freed.config.cwd ?? null], [null, null]);
    // A lost one.
    await page.goto(`${hub.url}/servers/lost`);
    await page.locator('[data-attempts]').getByText(/^\d+ attempts? made, the next in \d+ s$/).waitFor();
    assert.equal(await page.locator('[data-program]').count(), 0, 'no program runs');
    await context.close();
    for (const name of ['bounded', 'lost']) await hub.api('DELETE', `/api/mcp/servers/${name}`);
  },

  async 'tools are switched, found and called'(hub) {
    const context = await signedIn(hub);
    const page = await context.newPage();
    await page.goto(`${hub.url}/tools`);
    await page.locator('[data-tool=search_docs]').getByRole('switch').click();
    await page.locator('[data-tool=search_docs].off').waitFor();
    await page.waitForFunction(() => /1 switched off/.test(document.querySelector('.sub')?.textContent ?? ''));
    assert.ok(!(await hub.mcp('tools/list', {})).includes('"search_docs"'), 'it is not listed');
    assert.match(await hub.mcp('tools/call', { name: 'search_docs', arguments: { query: 'x' } }), /unknown tool/, 'nor can it be called');
    await page.locator('[data-tool=search_docs]').getByRole('switch').click();
    await page.locator('[data-tool=search_docs]:not(.off)').waitFor();
    await page.locator('[data-find]').fill('everything');
    await page.getByRole('button', { name: 'Turn off all shown' }).click();
    await page.getByRole('button', { name: 'Undo' }).click();
    await page.locator('[data-tool=everything__echo]:not(.off)').waitFor();
    // By keyboard.
    await page.locator('[data-find]').fill('everything__echo');
    await page.locator('[data-tool=everything__echo]').waitFor();
    await page.locator('[data-find]').press('Tab');
    await page.locator('body').press('j');
    await page.goto(`${hub.url}/tools/everything/echo`);
    await page.locator('[data-arg=message] textarea').fill('안녕');
    await page.keyboard.press('Control+Enter');
    await page.getByText('Echo: 안녕').first().waitFor();
    await page.goto(`${hub.url}/tools/fixture/test_image_content`);
    await page.getByRole('button', { name: /^Run/ }).click();
    await page.locator('[data-result=image] img').waitFor();
    await page.goto(`${hub.url}/tools/fixture/test_error_handling`);
    await page.getByRole('button', { name: /^Run/ }).click();
    await page.locator('[data-verdict=failed]').getByText('Tool error').waitFor();
    // Two thousand tools.
    const many = Array.from({ length: 2000 }, (_, n) => ({ name: `many__tool_${n}`, server: 'many', key: `tool_${n}`, title: null, description: `Does thing number ${n} for whoever asks`, parameters: 2, required: 1, annotations: null, enabled: true, calls: n }));
    await page.route('**/api/tools', (route) => route.fulfill({ json: many }));
    await page.goto(`${hub.url}/tools`);
    await page.locator('[data-tool=many__tool_0]').waitFor();
    assert.ok((await page.locator('[data-tool]').count()) < 80, 'only what is seen is drawn');
    const took = await page.evaluate(async () => {
      const find = document.querySelector('[data-find]');
      const began = performance.now();
      find.value = 'tool_1999';
      find.dispatchEvent(new Event('input', { bubbles: true }));
      while (!document.querySelector('[data-tool=many__tool_1999]')) await new Promise((done) => setTimeout(done));
      return performance.now() - began;
    });
    console.log(`   filter over 2,000 tools: ${took.toFixed(1)} ms`);
    assert.ok(took < 50, `filtering took ${took} ms`);
    await context.close();
  },

  async 'the builder, with the examples of the guide'(hub) {
    const context = await signedIn(hub);
    const page = await context.newPage();
    await page.goto(`${hub.url}/tools/new`);
    await page.getByLabel('Name').fill('Bad Name');
    await page.getByText('Begin with a letter a to z').waitFor();
    await page.getByLabel('Name').fill('search_docs');
    await page.getByText('There is a tool named search_docs already').waitFor();
    await page.getByLabel('Name').fill('get_user_daily_limit');
    await page.getByLabel('Description for the model').fill('특정 사용자의 일일 제한량을 조회합니다.');
    await page.locator('[data-step="2"]').click();
    await page.getByRole('button', { name: 'Add parameter' }).click();
    await page.locator('fieldset[data-param]').getByLabel('Name').fill('user_name');
    await page.locator('[data-step="3"]').click();
    await page.locator('[data-table=h_user]').waitFor();
    await editor(page).click();
    await page.keyboard.type('SELECT u.user_nm, l.max_count\nFROM h_user u\nJOIN h_mcp_tool_limit l ON u.uid = l.target_id\nWHERE u.', { delay: 5 });
    assert.ok((await suggestions(page)).includes('user_nm'), 'columns of the alias');
    await page.keyboard.type('user_nm = :', { delay: 15 });
    await page.waitForTimeout(300);
    assert.deepEqual(await suggestions(page), ['user_name'], 'parameters after a colon');
    await page.keyboard.press('Tab');
    await page.keyboard.type(" AND l.target_type = 'USER'");
    assert.match(await editor(page).innerText(), /= :user_name AND/);
    await page.keyboard.press('Escape');
    await page.locator('.dock [data-arg=user_name]').fill('hong');
    await page.keyboard.press('Control+Enter');
    await page.locator('[data-run=ok]').waitFor();
    assert.match(await page.locator('.dock [data-result]').innerText(), /hong\s+50/);
    await page.getByRole('radio', { name: 'What the model gets' }).click();
    assert.match(await page.locator('.dock pre').innerText(), /\{"user_nm":"hong","max_count":50\}/);
    // A tick is for steps that were seen.
    for (const n of [1, 2, 3, 4]) assert.equal(await page.locator(`[data-step="${n}"]`).getAttribute('data-valid'), String(n < 4), `step ${n}`);
    // Changed since: cannot be published until it is run again.
    await editor(page).click();
    await page.keyboard.press('Control+End');
    await page.keyboard.type(' ');
    await page.locator('[data-run=stale]').waitFor();
    assert.ok(await page.getByRole('button', { name: /Save and activate/ }).isDisabled());
    // What was typed survives a reload.
    await page.waitForTimeout(500);
    await page.reload();
    await page.getByText('What you typed last time').waitFor();
    await page.locator('.dock [data-arg=user_name]').fill('hong');
    await page.locator('[data-step="3"]').click();
    await page.keyboard.press('Control+Enter');
    await page.locator('[data-run=ok]').waitFor();
    await page.keyboard.press('Control+s');
    await page.locator('[data-saved]').waitFor();
    assert.match(await hub.mcp('tools/call', { name: 'get_user_daily_limit', arguments: { user_name: 'hong' } }), /"max_count":50/);

    // Drag and drop, braces, Korean and the order of suggestions.
    await page.goto(`${hub.url}/tools/new?step=2`);
    await page.getByRole('button', { name: 'Add parameter' }).click();
    await page.locator('fieldset[data-param]').getByLabel('Name').fill('name_of');
    await page.locator('[data-step="3"]').click();
    await page.locator('[data-column="employees.name"]').waitFor();
    await editor(page).click();
    await page.keyboard.type('SELECT ');
    await page.locator('[data-column="employees.department"]').dragTo(editor(page));
    assert.match(await editor(page).innerText(), /department/, 'a column is dropped in');
    await page.keyboard.press('Control+a');
    await page.keyboard.type('SELECT name FROM employees WHERE name = {{', { delay: 5 });
    await page.waitForTimeout(300);
    await page.keyboard.press('Tab');
    assert.match(await editor(page).innerText(), /= :name_of$/m, `braces become a bound parameter: ${await editor(page).innerText()}`);
    await page.keyboard.press('Control+a');
    await page.keyboard.type('SELECT * FROM employees WHERE na', { delay: 8 });
    const order = await suggestions(page);
    assert.ok(order.indexOf('name_of') === 0 && order.indexOf('name') > 0 && order.indexOf('name') < (order.findIndex((it) => it === it.toUpperCase()) + 1 || 99), `parameters, columns, then words: ${order}`);
    await page.keyboard.press('Escape');
    const session = await context.newCDPSession(page);
    await page.keyboard.press('Control+a');
    await page.keyboard.type("SELECT '");
    for (const step of ['ㄱ', '기', '김']) {
      await session.send('Input.imeSetComposition', { text: step, selectionStart: step.length, selectionEnd: step.length });
      assert.equal(await page.locator('.cm-tooltip-autocomplete').count(), 0, 'a syllable in the making suggests nothing');
    }
    await session.send('Input.insertText', { text: '김민준' });
    assert.match(await editor(page).innerText(), /SELECT '김민준'/);
    await page.keyboard.press('Control+a');
    await page.keyboard.type('DELETE FROM employees');
    await page.getByText('Only statements that read').first().waitFor();

    // An expression.
    await page.goto(`${hub.url}/tools/new`);
    page.once('dialog', (dialog) => dialog.accept());
    await page.getByRole('button', { name: 'Discard' }).click();
    await page.getByLabel('Name').fill('multiply_numbers');
    await page.getByLabel('Description for the model').fill('두 숫자를 입력받아 곱한 결과를 반환합니다.');
    await page.locator('[data-step="2"]').click();
    for (const [n, name] of ['num1', 'num2'].entries()) {
      await page.getByRole('button', { name: 'Add parameter' }).click();
      await page.locator('fieldset[data-param]').nth(n).getByLabel('Name').fill(name);
      await page.locator('fieldset[data-param]').nth(n).getByLabel('Type').selectOption('NUMBER');
    }
    await page.locator('[data-step="3"]').click();
    await page.getByRole('radio', { name: 'Expression' }).click();
    await editor(page).click();
    await page.keyboard.type('num1 * ');
    await page.keyboard.press('Control+Enter');
    await page.getByText(/line 1, column/).waitFor();
    await page.keyboard.type('num2');
    await page.keyboard.press('Escape');
    await page.locator('.dock [data-arg=num1]').fill('5');
    await page.locator('.dock [data-arg=num2]').fill('3');
    await page.keyboard.press('Control+Enter');
    await page.locator('[data-run=ok]').waitFor();
    assert.match(await page.locator('.dock [data-result]').innerText(), /15/);
    await page.getByRole('button', { name: /Save and activate/ }).click();
    await page.locator('[data-saved]').waitFor();
    assert.match(await hub.mcp('tools/call', { name: 'multiply_numbers', arguments: { num1: 5, num2: 3 } }), /15/);
    await context.close();
  },

  async 'the examples of the guide in Korean, typed at several speeds'() {
    const hub = await Hub.start();
    const context = await signedIn(hub, { locale: 'ko-KR' });
    const page = await context.newPage();
    const examples = [
      { name: 'get_user_daily_limit', description: '특정 사용자의 일일 제한량을 조회합니다.', params: { user_name: ['STRING', 'hong'] }, text: "SELECT u.user_nm, l.max_count \nFROM h_user u \nJOIN h_mcp_tool_limit l ON u.uid = l.target_id \nWHERE u.user_nm = :user_name AND l.target_type = 'USER'", result: /hong\s+50/, call: /"max_count":50/ },
      { name: 'multiply_numbers', description: '두 숫자를 입력받아 곱한 결과를 반환합니다.', params: { num1: ['NUMBER', '5'], num2: ['NUMBER', '3'] }, kind: '수식', text: 'num1 * num2', result: /15/, call: /15/ },
    ];
    for (const { name, description, params, kind, text, result, call } of examples) {
      await page.goto(`${hub.url}/tools/new`);
      await page.getByLabel('이름').fill(name);
      await page.getByLabel('모델용 설명').fill(description);
      await page.locator('[data-next]').click();
      for (const [n, [param, [type]]] of Object.entries(params).entries()) {
        await page.getByRole('button', { name: '파라미터 추가' }).click();
        await page.keyboard.type(param);
        await page.locator('fieldset[data-param]').nth(n).getByLabel('타입').selectOption(type);
      }
      await page.locator('[data-next]').click();
      if (kind) await page.getByRole('radio', { name: kind }).click();
      else await page.locator('[data-table=h_user]').waitFor();
      for (const delay of [0, 25, 150]) await typeText(page, text, delay);
      for (const [param, [, value]] of Object.entries(params)) await page.locator(`.dock [data-arg=${param}]`).fill(value);
      await page.keyboard.press('Control+Enter');
      await page.locator('[data-run=ok]').waitFor();
      assert.match(await page.locator('.dock [data-result]').innerText(), result);
      await page.getByRole('button', { name: '저장하고 활성화' }).click();
      await page.locator('[data-saved]').waitFor();
      const values = Object.entries(params).map(([param, [type, value]]) => [param, type === 'NUMBER' ? Number(value) : value]);
      assert.match(await hub.mcp('tools/call', { name, arguments: Object.fromEntries(values) }), call);
    }
    await context.close();
    await hub.end();
  },

  async 'what is typed in the editor is what it holds'(hub) {
    const context = await signedIn(hub);
    const page = await context.newPage();
    const document = "SELECT u.user_nm, l.max_count \nFROM h_user u \nJOIN h_mcp_tool_limit l ON u.uid = l.target_id \nWHERE u.user_nm = :user_name AND l.target_type = 'USER'";
    await page.goto(`${hub.url}/tools/new?step=2`);
    await page.getByRole('button', { name: 'Add parameter' }).click();
    assert.ok(await page.evaluate(() => document.activeElement.matches('[data-param-name]')), 'the focus is in the field that was added');
    await page.keyboard.type('user_name');
    await page.locator('[data-next]').click();
    await page.locator('[data-table=h_user]').waitFor();
    for (const [text, delay] of [['SELECT 1 AS a\n', 120], ['SELECT n\nFROM employees e\n', 60], [document, 0], [document, 25], [document, 150]]) await typeText(page, text, delay);
    // Who moves in the list means it; Tab takes the first without moving.
    await editor(page).click();
    await page.keyboard.press('Control+a');
    await page.keyboard.type('SELECT * FROM emplo', { delay: 20 });
    await suggestions(page);
    await page.waitForTimeout(120);
    await page.keyboard.press('Tab');
    assert.match(await heldText(page), /FROM employees$/);
    await page.keyboard.type(' WHERE dep', { delay: 20 });
    assert.equal((await suggestions(page))[0], 'department');
    // The list may still be filled; a refill begins at the top again.
    await page.waitForTimeout(500);
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('Enter');
    assert.match(await heldText(page), /WHERE department$/);
    // An expression: names that nobody declared are marked, and become parameters.
    await page.getByRole('radio', { name: 'Expression' }).click();
    await editor(page).click();
    await page.keyboard.type('가격 * 수량', { delay: 20 });
    await page.keyboard.press('Enter');
    await page.keyboard.press('Backspace');
    await page.locator('.cm-lintRange-error').nth(1).waitFor();
    assert.deepEqual(await page.locator('.cm-lintRange-error').allInnerTexts(), ['가격', '수량']);
    for (const name of ['가격', '수량']) {
      await page.locator('.cm-lintRange-error').first().hover();
      await page.getByRole('button', { name: `Add parameter “${name}”` }).click();
      await page.locator('.cm-lintRange-error').getByText(name).waitFor({ state: 'detached' });
      await page.mouse.move(0, 0);
    }
    await page.locator('[data-step="2"]').click();
    for (const name of ['가격', '수량']) await page.locator(`fieldset[data-param="${name}"]`).getByLabel('Type').selectOption('NUMBER');
    assert.equal(await page.locator('fieldset .err').count(), 0, 'Korean names of parameters are right');
    await page.locator('fieldset').first().getByRole('button', { name: /Remove user_name/ }).click();
    await page.locator('.dock [data-arg="가격"]').fill('1500');
    await page.keyboard.press('Control+Enter');
    // The message names the argument, and its field is marked.
    await page.locator('[data-arg-fault="수량"]').waitFor();
    assert.equal(await page.locator('.dock [data-arg="수량"]').getAttribute('aria-invalid'), 'true');
    await page.locator('.dock [data-arg="수량"]').fill('3');
    await page.keyboard.press('Control+Enter');
    await page.locator('[data-run=ok]').waitFor();
    assert.match(await page.locator('.dock [data-result]').innerText(), /4500/);
    await page.evaluate(() => localStorage.clear());
    await context.close();
  },

  async 'drafts, publishing and versions, in both languages'(hub) {
    const words = {
      'en-US': { draft: 'Save as draft', publish: 'Save and activate', versions: 'Versions', restore: 'Restore', name: 'Name', agent: 'Description for the model', user: 'Description for people', add: 'Add parameter', duplicate: /^Duplicate/, remove: /^Remove/, confirm: 'Remove', undo: 'Undo', discard: 'Discard the draft', yes: 'Discard', line: /line 1, column/ },
      'ko-KR': { draft: '초안으로 저장', publish: '저장하고 활성화', versions: '버전', restore: '되돌리기', name: '이름', agent: '모델용 설명', user: '사용자용 설명', add: '파라미터 추가', duplicate: /복제$/, remove: /제거$/, confirm: '제거', undo: '되돌리기', discard: '초안 버리기', yes: '버리기', line: /1행 \d+열/ },
    };
    for (const [locale, word] of Object.entries(words)) {
      const context = await signedIn(hub, { locale });
      const page = await context.newPage();
      const name = locale === 'en-US' ? 'headcount' : 'headcount_ko';
      const calls = () => hub.mcp('tools/call', { name, arguments: {} });
      const type = async (text) => {
        await editor(page).click();
        await page.keyboard.press('Control+a');
        await page.keyboard.type(text);
        await page.keyboard.press('Escape');
      };
      await page.goto(`${hub.url}/servers`);
      const title = locale === 'en-US' ? 'Custom tools' : '사용자 정의 도구';
      await page.getByRole('link', { name: title }).click();
      await page.getByRole('heading', { name: title }).waitFor();
      await page.keyboard.press('n');
      await page.locator('.form').getByLabel(word.name).first().fill(name);
      // A draft needs no more than a name, and clients see nothing of it.
      await page.getByRole('button', { name: word.draft }).first().click();
      await page.locator('[data-saved=draft]').waitFor();
      assert.match(await calls(), /unknown tool/);
      await page.getByLabel(word.agent).fill('Counts the people of each department.');
      await page.getByLabel(word.user).fill('부서별 인원');
      await page.locator('[data-next]').click();
      await page.locator('[data-next]').click();
      await page.locator('[data-table=employees]').waitFor();
      await type('SELECT nope FROM employees');
      await page.keyboard.press('Control+Enter');
      await page.locator('.dock [role=alert]').getByText(word.line).waitFor();
      await page.locator('.cm-lint-marker-error').waitFor();
      await type('SELECT department, count(*) AS people FROM employees GROUP BY department');
      await page.locator('.foot [data-next]').click();
      await page.keyboard.press('Control+Enter');
      await page.locator('[data-run=ok]').waitFor();
      // A label and a number: a chart.
      await page.locator('[data-chart=people] rect').first().waitFor();
      assert.equal(await page.locator('[data-chart=people] rect').count(), 4);
      await page.locator('.dock').getByRole('button', { name: word.publish }).click();
      await page.locator('[data-saved=published]').waitFor();
      await page.locator('[data-live-version="1"]').waitFor();
      assert.match(await calls(), /Engineering/);
      // A draft of a live tool changes nothing for clients.
      await page.locator('[data-step="3"]').click();
      await page.locator('[data-table=employees]').waitFor();
      await type('SELECT 42 AS answer');
      await page.getByRole('button', { name: word.draft }).first().click();
      await page.locator('[data-saved=draft]').waitFor();
      assert.match(await calls(), /Engineering/, 'the published version stays');
      await page.reload();
      await page.locator('[data-has-draft]').waitFor();
      assert.match(await editor(page).innerText(), /42/);
      await page.keyboard.press('Control+Enter');
      await page.locator('[data-run=ok]').waitFor();
      await page.getByRole('button', { name: word.publish }).first().click();
      await page.locator('[data-live-version="2"]').waitFor();
      assert.match(await calls(), /42/);
      // A change of words needs no run, and publishing the same again makes no version.
      await page.reload();
      await page.locator('[data-step="1"]').click();
      await page.getByLabel(word.user).fill('부서별 인원수');
      await page.getByRole('button', { name: word.publish }).first().click();
      await page.locator('[data-live-version="3"]').waitFor();
      await page.getByRole('button', { name: word.publish }).first().click();
      await page.locator('[data-saved=same]').waitFor();
      // A draft that is discarded.
      await page.locator('[data-step="3"]').click();
      await type('SELECT 7 AS seven');
      await page.getByRole('button', { name: word.draft }).first().click();
      await page.locator('[data-saved=draft]').waitFor();
      await page.goto(`${hub.url}/custom-tools`);
      await page.locator(`[data-custom-tool=${name}] .tag.warn`).waitFor();
      assert.equal(await page.locator(`[data-custom-tool=${name}] [data-description]`).innerText(), '부서별 인원수');
      await page.locator(`[data-custom-tool=${name}] a.name`).click();
      await page.getByRole('button', { name: word.discard }).click();
      await page.getByRole('dialog').getByRole('button', { name: word.yes }).click();
      await page.locator('[data-has-draft]').waitFor({ state: 'detached' });
      assert.match(await editor(page).innerText(), /42/);
      // Restoring asks, says what happens, and does it.
      await page.getByRole('button', { name: word.versions }).click();
      await page.locator('[data-version="1"]').getByRole('button', { name: word.restore }).click();
      const dialog = page.locator('dialog[open]').last();
      assert.match(await dialog.innerText(), /4/);
      await dialog.getByRole('button', { name: word.restore }).click();
      await page.locator('[data-saved=restored]').waitFor();
      await page.locator('[data-live-version="4"]').waitFor();
      assert.match(await calls(), /Engineering/);
      // The list: filter, switch, duplicate, remove and undo.
      await page.goto(`${hub.url}/custom-tools`);
      await page.locator('[data-find]').fill(name);
      const row = page.locator(`[data-custom-tool=${name}]`);
      await row.getByRole('switch').click();
      await page.locator(`[data-custom-tool=${name}].off`).waitFor();
      await hub.api('GET', '/api/tools').then((all) => assert.equal(all.find((it) => it.name === name).enabled, false));
      assert.match(await calls(), /unknown tool/);
      await row.getByRole('switch').click();
      await page.locator(`[data-custom-tool=${name}]:not(.off)`).waitFor();
      await row.getByRole('link', { name: word.duplicate }).click();
      await page.locator('.form').getByLabel(word.name).first().waitFor();
      assert.equal(await page.locator('.form').getByLabel(word.name).first().inputValue(), `${name}_copy`);
      page.once('dialog', (it) => it.accept());
      await page.goto(`${hub.url}/custom-tools`);
      await row.getByRole('button', { name: word.remove }).click();
      await page.getByRole('dialog').getByRole('button', { name: word.confirm }).click();
      await row.waitFor({ state: 'detached' });
      await page.getByRole('button', { name: word.undo }).click();
      await row.waitFor();
      assert.match(await calls(), /Engineering/);
      await hub.api('DELETE', `/api/custom-tools/${name}`);
      await page.evaluate(() => localStorage.clear());
      await context.close();
    }
  },

  async 'types and limits of a statement are set in the builder'(hub) {
    const context = await signedIn(hub);
    const page = await context.newPage();
    await page.goto(`${hub.url}/tools/new`);
    await page.getByLabel('Name').fill('sorted_employees');
    await page.getByLabel('Description for the model').fill('Lists employees, sorted by a column.');
    await page.locator('[data-step="2"]').click();
    await page.getByRole('button', { name: 'Add parameter' }).click();
    const row = page.locator('fieldset[data-param]');
    await row.getByLabel('Name').fill('by');
    await row.getByLabel('Type').selectOption('IDENTIFIER');
    await row.getByLabel('Columns to choose from').fill('name, id DESC');
    await page.locator('[data-step="3"]').click();
    await editor(page).click();
    await page.keyboard.type('SELECT id FROM employees ORDER BY :by ');
    await page.keyboard.press('Escape');
    await page.getByLabel('Result as').selectOption('csv');
    await page.getByLabel('Rows at most').fill('2');
    await page.getByLabel('Time limit (ms)').fill('800');
    await page.getByLabel('More rows in pages').check();
    await page.locator('.dock [data-arg=by]').selectOption('id DESC');
    await page.keyboard.press('Control+Enter');
    await page.locator('[data-run=ok]').waitFor();
    await page.getByRole('button', { name: /Save and activate/ }).click();
    await page.locator('[data-saved]').waitFor();
    const first = await hub.mcp('tools/call', { name: 'sorted_employees', arguments: { by: 'id DESC' } });
    const cursor = first.match(/next_cursor: ([\w-]+)/)?.[1];
    assert.ok(cursor, first);
    const next = await hub.mcp('tools/call', { name: 'sorted_employees', arguments: { by: 'id DESC', cursor } });
    assert.ok(next.includes('EMP') && next !== first, next);
    // The builder shows what was saved, and saves it again as it is.
    await page.goto(`${hub.url}/tools/custom/sorted_employees`);
    const shown = await context.request.get(`${hub.url}/api/custom-tools/sorted_employees`);
    const { max_rows, timeout_ms, paged, params } = await shown.json();
    assert.deepEqual([max_rows, timeout_ms, paged, params[0].param_type], [2, 800, true, 'IDENTIFIER']);
    await page.evaluate(() => localStorage.clear());
    await context.close();
  },

  async 'a test run that is cut stays readable'(hub) {
    const context = await signedIn(hub, { locale: 'ko-KR' });
    const page = await context.newPage();
    await page.goto(`${hub.url}/tools/new?step=3`);
    await page.locator('[data-table=employees]').waitFor();
    await editor(page).click();
    await page.keyboard.type('SELECT a.name, b.id FROM employees a, employees b, employees c, employees d');
    await page.keyboard.press('Escape');
    await page.keyboard.press('Control+Enter');
    await page.locator('[data-truncated]').getByText('처음 1000행').waitFor();
    assert.equal(await page.locator('.dock [data-result=table] th').count(), 2);
    await page.evaluate(() => localStorage.clear());
    await context.close();
  },

  async 'sources are added, changed, tested and removed'() {
    const hub = await Hub.start();
    const file = `${hub.directory}/shop.db`;
    execFileSync('python3', ['-c', "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('CREATE TABLE item (name TEXT, price INTEGER)'); db.execute(\"INSERT INTO item VALUES ('가방', 30000), ('book', 12000)\"); db.commit()", file]);
    for (const [locale, word] of Object.entries({
      'en-US': { add: 'Add source', name: 'Name', url: 'Address', rows: 'Rows at most', test: 'Test', save: 'Save', works: 'It works: 1 table', edit: /^Edit/, remove: /^Remove/, yes: 'Remove', off: 'Off', auto: /^While/, own: 'The files of the hub itself', gone: 'Nothing listens on the port' },
      'ko-KR': { add: '데이터 소스 추가', name: '이름', url: '주소', rows: '최대 행', test: '테스트', save: '저장', works: '테이블 1개', edit: /수정$/, remove: /제거$/, yes: '제거', off: '끄기', auto: /^다른 소스/, own: '허브 자체의 파일', gone: '그 포트에서 응답하는 서버가 없습니다' },
    })) {
      const context = await signedIn(hub, { locale });
      const page = await context.newPage();
      const tools = async () => (await hub.api('GET', '/api/tools')).map((it) => it.name);
      await page.goto(`${hub.url}/settings?tab=sources`);
      await page.locator('[data-source=sample]').waitFor();
      await page.getByRole('button', { name: word.add }).click();
      const form = page.getByRole('dialog');
      await form.getByLabel(word.name).first().fill('shop');
      await form.getByLabel(word.url).first().fill(`${hub.directory}/data/maru.db`);
      await form.getByRole('button', { name: word.save }).click();
      await form.getByText(word.own).waitFor();
      await form.getByLabel(word.url).first().fill(file);
      await form.getByRole('button', { name: word.test }).click();
      await form.locator('[data-tested=ok]').getByText(word.works).waitFor();
      await form.getByRole('button', { name: word.save }).click();
      const row = page.locator('[data-source=shop]');
      await row.waitFor();
      assert.ok(!(await tools()).includes('search_docs'), 'the sample tools step back');
      await row.getByRole('button', { name: word.edit }).click();
      await form.getByLabel(word.rows).first().fill('2');
      await form.getByRole('button', { name: word.save }).click();
      await form.waitFor({ state: 'detached' });
      assert.equal((await hub.api('GET', '/api/sources')).find((it) => it.name === 'shop').maxRows, 2);
      // What the caller's settings are is kept as it was typed, and every field has words of the language.
      const settings = form.locator('[data-setting=caller_settings] input');
      for (const typed of ['', 'app.user=name, app.tenant=tenant_id']) {
        await row.getByRole('button', { name: word.edit }).click();
        await settings.waitFor();
        assert.equal(await settings.inputValue(), typed);
        assert.equal(await form.locator('[data-setting] .mono:not(input)').count(), 0, 'every field has a label');
        const hints = await form.locator('[data-setting] .hint').allInnerTexts();
        if (locale === 'ko-KR') for (const hint of hints) assert.match(hint, /[가-힣]/);
        await settings.fill('app.user=name, app.tenant=tenant_id');
        await form.getByRole('button', { name: word.save }).click();
        await form.waitFor({ state: 'detached' });
      }
      assert.deepEqual((await hub.api('GET', '/api/sources/shop')).caller_settings, { 'app.user': 'name', 'app.tenant': 'tenant_id' });
      // Why a database cannot be reached.
      await hub.api('POST', '/api/sources', { name: 'gone', url: 'postgres://reader:x@127.0.0.1:1/shop' });
      await page.reload();
      const gone = page.locator('[data-source=gone]');
      await gone.getByRole('button', { name: word.test }).click();
      await gone.getByText(word.gone).waitFor();
      await hub.api('DELETE', '/api/sources/gone');
      await page.reload();
      await row.getByRole('button', { name: word.remove }).click();
      await page.getByRole('dialog').getByRole('button', { name: word.yes }).click();
      await row.waitFor({ state: 'detached' });
      assert.ok((await tools()).includes('search_docs'), 'and come back');
      await page.locator('[data-sample]').getByRole('radio', { name: word.off }).click();
      await page.locator('[data-sample=off]').waitFor();
      assert.ok(!(await tools()).includes('query_bga_database'), 'nothing is left to query');
      await page.locator('[data-sample]').getByRole('radio', { name: word.auto }).click();
      await page.locator('[data-sample=auto]').waitFor();
      await context.close();
    }
    await hub.end();
  },

  async 'activity is live, filtered and masked'(hub) {
    const context = await signedIn(hub);
    const page = await context.newPage();
    await page.goto(`${hub.url}/activity`);
    await page.locator('tr[data-call]').first().waitFor();
    await page.evaluate(() => {
      window.seen = 0;
      new MutationObserver(() => {
        if (!window.seen && document.querySelector('tr[data-call] td .mono')?.textContent === 'get_employee_info') window.seen = Date.now();
      }).observe(document.body, { subtree: true, childList: true, characterData: true });
    });
    await hub.mcp('tools/call', { name: 'everything__echo', arguments: { message: 'x' } });
    await sleep(400);
    await page.evaluate(() => (window.seen = 0));
    await hub.mcp('tools/call', { name: 'get_employee_info', arguments: { employee_id: 'EMP001' } });
    const done = Date.now();
    await page.waitForFunction(() => window.seen);
    const late = (await page.evaluate(() => window.seen)) - done;
    console.log(`   a call is on the screen ${late} ms after its answer`);
    assert.ok(late < 100, `${late} ms`);
    // Pause counts, and follows again.
    await page.getByRole('button', { name: 'Pause' }).click();
    await hub.mcp('tools/call', { name: 'get_employee_info', arguments: { employee_id: 'EMP002' } });
    await page.getByRole('button', { name: 'Follow, 1 new' }).click();
    // A secret in the arguments.
    await hub.mcp('tools/call', { name: 'everything__echo', arguments: { message: 'x', password: 'canary-in-call' } });
    await page.locator('[data-find]').fill('everything__echo');
    await page.waitForFunction(() => [...document.querySelectorAll('tr[data-call]')].every((row) => row.textContent.includes('everything__echo')));
    await page.locator('tr[data-call]').first().click();
    await page.getByRole('dialog').getByRole('heading', { name: 'Arguments' }).waitFor();
    assert.match(await page.getByRole('dialog').innerText(), /"password": "\*\*\*"/);
    assert.ok(!(await page.content()).includes('canary-in-call'));
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.goto(`${hub.url}/activity?outcome=refused`);
    await page.locator('[data-outcome=refused]').first().waitFor();
    await page.goto(`${hub.url}/activity?tool=get_employee_info`);
    await page.locator('tr[data-call]').first().click();
    await page.getByRole('button', { name: 'Replay' }).click();
    await page.getByText('Called again').waitFor();
    await context.close();
  },

  async 'a failed call of before a restart is found, in English and Korean'() {
    const hub = await Hub.start();
    await hub.mcp('tools/call', { name: 'get_employee_info', arguments: { employee_id: 'EMP001' } });
    await hub.mcp('tools/call', { name: 'search_docs', arguments: { query: 5, token: 'canary-in-call' } });
    await hub.stop();
    await hub.run();
    for (const [locale, search, reason, error] of [['en-US', 'Search tool, client, arguments and error', /not of type/, 'Error'], ['ko-KR', '도구, 클라이언트, 인수, 오류 검색', /query.*타입이 아닙니다/, '오류']]) {
      const context = await signedIn(hub, { locale });
      const page = await context.newPage();
      await page.goto(`${hub.url}/activity?outcome=error&since=24h`);
      await page.locator('tr[data-call]').first().waitFor();
      assert.equal(await page.locator('tr[data-call]').count(), 1);
      assert.match(await page.locator('tr[data-call]').innerText(), reason, 'the reason is in the list');
      await page.getByLabel(search).fill('no such text');
      await page.locator('tr[data-call]').waitFor({ state: 'detached' });
      await page.getByLabel(search).fill('OF TYPE');
      await page.locator('tr[data-call]').click();
      await page.getByRole('dialog').getByRole('heading', { name: error }).waitFor();
      assert.match(await page.locator('[data-call-error]').innerText(), reason);
      assert.ok(!(await page.content()).includes('canary-in-call'));
      await context.close();
    }
    await hub.end();
  },

  async 'usage by tool, server and caller follows the filters'(hub) {
    const context = await signedIn(hub);
    const page = await context.newPage();
    await page.goto(`${hub.url}/activity`);
    const row = (name) => page.locator(`[data-usage-row="${name}"]`);
    await row('get_employee_info').waitFor();
    await page.getByRole('button', { name: 'Calls', exact: true }).click();
    const numbers = await page.locator('[data-usage-row] td:nth-child(3)').allInnerTexts();
    assert.deepEqual(numbers, [...numbers].sort((a, b) => b.replace(/\D/g, '') - a.replace(/\D/g, '')), 'sorted by calls');
    const before = await page.locator('[data-usage-sum]').innerText();
    const more = page.getByRole('button', { name: /^Show all/ });
    if (await more.count()) await more.click();
    await row('search_docs').getByRole('button').click();
    await page.waitForFunction((text) => document.querySelector('[data-usage-sum]')?.textContent !== text, before);
    assert.equal(await page.locator('[data-usage-row]').count(), 1, 'the figures follow the filter');
    assert.match(page.url(), /tool=search_docs/);
    await page.getByRole('button', { name: 'Clear the filter' }).first().click();
    for (const range of ['1 h', '30 d']) {
      await page.getByRole('group', { name: 'Time range' }).or(page.getByLabel('Usage').getByLabel('Time range')).first().getByText(range, { exact: true }).click();
      await row('get_employee_info').waitFor();
    }
    await page.getByLabel('Usage').getByText('Callers', { exact: true }).click();
    await row('local').waitFor();
    await context.close();
  },

  async 'tokens and cost of models by day, and a budget that stops them'() {
    const scripted = await model([{ text: 'Yes.' }]);
    const hub = await Hub.start({ config: `log:\n  level: error\nmodels:\n  - name: scripted\n    base_url: ${scripted.url}\n    tool_mode: native\n    price: {input: 1000, output: 5000}\n` });
    const ask = () => fetch(`${hub.url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${hub.token}` }, body: JSON.stringify({ model: 'scripted', messages: [{ role: 'user', content: '?' }], max_tokens: 100 }) });
    assert.equal((await ask()).status, 200);
    for (const [locale, word] of Object.entries({
      'en-US': { sum: '1 requests, 100 tokens in, 20 tokens out', chart: 'Usage by day', cost: 'Cost', name: 'Name', limit: 'Limit', set: 'Set budget', remove: 'Remove' },
      'ko-KR': { sum: '요청 1회, 입력 토큰 100개, 출력 토큰 20개', chart: '일별 사용량', cost: '비용', name: '이름', limit: '한도', set: '예산 설정', remove: '제거' },
    })) {
      const context = await signedIn(hub, { locale });
      const page = await context.newPage();
      await page.goto(`${hub.url}/settings?tab=usage`);
      await page.getByText(word.sum).waitFor();
      const chart = page.getByRole('img', { name: word.chart });
      assert.equal(await chart.locator('rect.bar').count(), 1, 'one day has a bar');
      // Today is the last of the days.
      const box = await chart.boundingBox();
      await chart.hover({ position: { x: box.width - 3, y: 40 } });
      await page.locator('.tip').getByText(new Date().toISOString().slice(0, 10)).waitFor();
      await page.getByText(word.cost, { exact: true }).first().click();
      await page.getByRole('row', { name: /scripted/ }).getByText(/^0\.2 /).waitFor();
      const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'CSV' }).click()]);
      assert.match(readFileSync(await file.path(), 'utf8'), /"scripted"/);
      await page.locator('form.new').getByLabel(word.name).fill('all');
      await page.locator('form.new').getByLabel(word.limit).fill('150');
      await page.getByRole('button', { name: word.set }).click();
      await page.locator('.meter').waitFor();
      assert.equal((await ask()).status, 429);
      await page.getByRole('button', { name: word.remove }).click();
      await page.locator('.meter').waitFor({ state: 'detached' });
      await context.close();
    }
    await hub.end();
    scripted.end();
  },

  async 'a limit and a token for names that do not exist are refused'() {
    const hub = await Hub.start();
    for (const [locale, words] of [['en-US', { name: 'Name', set: 'Set limit', anyway: /anyway/, create: 'Create token', scope: 'May use', tools: 'only these tools', minute: 'Calls per minute', near: 'Did you mean “get_all_employees”?' }], ['ko-KR', { name: '이름', set: '', anyway: /그래도/, create: '', scope: '사용 범위', tools: '이 도구만', minute: '분당 호출', near: /“get_all_employees”.*찾으셨습니까/ }]]) {
      const context = await signedIn(hub, { locale });
      const page = await context.newPage();
      await page.goto(`${hub.url}/settings?tab=limits`);
      await page.locator('form.new select').selectOption('TOOL');
      await page.locator('form.new input.mono').fill('get_al_employees');
      await page.getByLabel(words.minute).fill('7');
      await page.locator('form.new button').click();
      await page.getByText(words.near).waitFor();
      await page.getByRole('button', { name: words.anyway }).waitFor();
      await page.locator('form.new input.mono').fill('get_all_employees');
      await page.locator('form.new button').click();
      await page.locator('td', { hasText: 'get_all_employees' }).waitFor();
      assert.match(await page.locator('tr', { hasText: 'get_all_employees' }).innerText(), /\b7\b/);
      await hub.mcp('tools/call', { name: 'get_all_employees', arguments: {} });
      await page.reload();
      const used = page.locator('tr', { hasText: 'get_all_employees' });
      await used.waitFor();
      assert.match(await used.innerText(), locale === 'en-US' ? /\b1\b/ : /\b2\b/, 'what was used today is counted');
      await page.goto(`${hub.url}/settings?tab=access`);
      const form = page.locator('form.form');
      await form.locator('input.mono').first().fill(`colleague-${locale.slice(0, 2)}`);
      await form.getByLabel(words.scope).selectOption('tools');
      await form.locator('input[type=search]').fill('search_docs');
      await form.locator('.pick label', { hasText: 'search_docs' }).click();
      await form.getByLabel(words.minute).fill('5');
      await form.locator('button.solid').click();
      const token = page.locator(`[data-token=colleague-${locale.slice(0, 2)}]`);
      await token.waitFor();
      assert.match(await token.innerText(), /search_docs/);
      const made = (await hub.api('GET', '/api/tokens')).find((it) => it.name === `colleague-${locale.slice(0, 2)}`);
      assert.deepEqual(made.tools, ['search_docs']);
      assert.ok(made.expiresAt > Date.now() + 80 * 86_400_000);
      const limits = await hub.api('GET', '/api/limits');
      assert.equal(limits.find((it) => it.target_id === made.name).max_per_minute, 5);
      await context.close();
    }
    await hub.end();
  },

  async 'a changed tool is shown word by word, and accepted or refused'() {
    const hub = await Hub.start();
    const file = join(hub.directory, 'words.txt');
    for (const [locale, words] of [['en-US', { accept: 'Accept', all: 'Accept all', refuse: 'Refuse', badge: 'Changed tools' }], ['ko-KR', { accept: '승인', all: '모두 승인', refuse: '거절', badge: '바뀐 도구' }]]) {
      writeFileSync(file, 'reads a small file');
      const name = `changing-${locale.slice(0, 2)}`;
      await hub.api('POST', '/api/mcp/servers', { name, transportType: 'STDIO', autoConnect: true, config: { command: 'node', args: [join(import.meta.dirname, 'changing.mjs'), file] } });
      const context = await signedIn(hub, { locale });
      const page = await context.newPage();
      await page.goto(`${hub.url}/servers/${name}`);
      await page.locator('[data-status=CONNECTED]').waitFor();
      await page.locator(`[data-tool=${name}__first]`).waitFor();
      const reconnect = async (text) => {
        writeFileSync(file, text);
        await hub.api('POST', `/api/mcp/servers/${name}/disconnect`);
        await hub.api('POST', `/api/mcp/servers/${name}/connect`);
      };
      await reconnect('deletes a small file');
      await page.locator('[data-changed="2"]').waitFor();
      await page.locator('[data-changed-badge]').waitFor();
      const first = page.locator('[data-changed-tool=first]');
      assert.match(await first.locator('del').innerText(), /reads/);
      assert.match(await first.locator('ins').innerText(), /deletes/);
      await first.getByRole('button', { name: words.refuse }).click();
      await page.locator('[data-changed="1"]').waitFor();
      await page.locator('[data-changed-tool=second]').getByRole('button', { name: words.accept }).click();
      await page.locator('[data-changed]').waitFor({ state: 'detached' });
      assert.match(await hub.mcp('tools/list', {}), new RegExp(`${name}__second`));
      assert.doesNotMatch(await hub.mcp('tools/list', {}), new RegExp(`${name}__first`));
      await reconnect('deletes a large file');
      await page.getByRole('button', { name: words.all }).click();
      await page.locator('[data-changed]').waitFor({ state: 'detached' });
      await context.close();
      await hub.api('DELETE', `/api/mcp/servers/${name}`);
    }
    await hub.end();
  },

  async 'without the code the page says how to sign in, and a hub that is down is seen'() {
    const hub = await Hub.start();
    for (const [locale, words] of [['en-US', { guest: /not signed in/, down: /does not answer/, used: /already used/ }], ['ko-KR', { guest: /로그인하지 않았습니다/, down: /응답하지 않습니다/, used: /이미 사용되었거나/ }]]) {
      const context = await open({ errors, locale });
      const page = await context.newPage();
      await page.goto(hub.url);
      await page.locator('[data-guest]').getByText(words.guest).waitFor();
      assert.match(await page.locator('[data-guest]').innerText(), /maru console/);
      const wrong = await page.goto(`${hub.url}/no/such/page`);
      assert.equal(wrong.status(), 404);
      await page.locator('[data-missing]').getByText('/no/such/page').waitFor();
      await page.goto(`${hub.url}/#code=${hub.link.split('code=')[1]}x`);
      await page.locator('[data-guest]').getByText(words.used).waitFor();
      // A page of its own: the one that was given a code still navigates.
      await page.goto('about:blank');
      await page.goto(hub.url);
      await page.locator('[data-live=true]').waitFor();
      await page.locator('h1').first().waitFor();
      await hub.stop();
      await page.locator('[data-hub-down]').getByText(words.down).waitFor();
      // A part of the console that is not loaded yet comes with the hub.
      await page.evaluate(() => document.querySelector('nav a[href="/activity"]').click());
      await hub.run();
      await page.locator('[data-hub-down]').waitFor({ state: 'detached', timeout: 20_000 });
      await page.locator('h1').first().waitFor();
      assert.equal(new URL(page.url()).pathname, '/activity');
      await context.close();
    }
    await hub.end();
  },

  async 'the playground says what really happened'() {
    const scripted = await model([
      { tool: 'search_docs', arguments: '{"query": "연차"}' },
      { text: 'As you wish.' },
      { tool: 'search_docs', arguments: '{"query": "연차"}' },
      { text: 'As you wish.' },
    ]);
    const hub = await Hub.start({ config: `log:\n  level: error\nmodels:\n  - name: scripted\n    base_url: ${scripted.url}\n    tool_mode: native\n  - name: gone\n    base_url: http://127.0.0.1:9/v1\n` });
    for (const [locale, words] of [['en-US', { ask: 'Ask me before each call', refuse: 'Refuse', refused: 'Refused by you', died: 'Broke off' }], ['ko-KR', { ask: '호출 전에 확인', refuse: '거절', refused: '사용자가 거절함', died: '중단됨' }]]) {
      const context = await signedIn(hub, { locale, height: 600 });
      const page = await context.newPage();
      await page.goto(`${hub.url}/play`);
      await page.locator('option[value=scripted]').waitFor({ state: 'attached' });
      assert.deepEqual((await page.locator('aside option').allInnerTexts()).filter((it) => it.startsWith('agent/')), [], 'the agent does not run inside itself');
      await page.locator('aside select').first().selectOption('scripted');
      await page.locator('#question').fill('How much vacation is there?');
      await page.locator('aside input[type=checkbox]').last().check();
      await page.keyboard.press('Control+Enter');
      await page.locator('[data-round="1"] [role=alert]').waitFor();
      await page.getByRole('button', { name: words.refuse }).click();
      await page.locator('[data-run-state=done]').waitFor();
      assert.match(await page.locator('[data-round="1"] summary').innerText(), new RegExp(words.refused));
      const offered = await page.locator('[data-offered-run]').innerText();
      const kept = await hub.api('GET', `/api/runs/${page.url().split('/').pop()}`);
      assert.ok(offered.includes(`${kept.tools}`), `${offered}: ${kept.tools}`);
      await page.locator('aside select').first().selectOption('gone');
      await page.locator('#question').fill('And now?');
      await page.keyboard.press('Control+Enter');
      await page.locator('[data-run-state=failed]').waitFor();
      assert.doesNotMatch(await page.locator('.talk').innerText(), /\bOK\b/);
      const talk = await page.locator('.scroll').evaluate((it) => ({ clipped: [...it.children].some((child) => child.scrollHeight > child.clientHeight + 2 && getComputedStyle(child).overflow === 'hidden'), text: it.innerText }));
      assert.ok(!talk.clipped, 'cards are whole');
      await context.close();
    }
    await hub.end();
    scripted.end();
  },

  async 'an agent run as the hub streams it'(hub) {
    const context = await signedIn(hub);
    const page = await context.newPage();
    const event = (kind, data) => `event: ${kind}\ndata: ${JSON.stringify(data)}\n\n`;
    const call = { id: 'c1', name: 'maru.search_docs', arguments: { query: '연차' }, dialect: 'hermes', repairs: ['a missing brace was added'], raw: '{"query": "연차"' };
    await page.route('**/v1/models', (route) => route.fulfill({ json: { data: [{ id: 'qwen3' }] } }));
    await page.route('**/generate_with_mcp', (route) => route.fulfill({ contentType: 'text/event-stream', body: [event('run', { run_id: '', model: 'qwen3', tools: 10, tool_tokens: 900 }), event('round', { round: 1 }), event('thought', { text: 'Let me look.' }), event('call', call), event('observation', { ...call, result: 'found', is_error: false, ms: 4 }), event('usage', { total_tokens: 500 }), event('round', { round: 2 }), event('thought', { text: 'It is 15 days.' }), event('answer', { text: 'It is 15 days.', cut: false, usage: { total_tokens: 812 } })].join('') }));
    await page.goto(`${hub.url}/play`);
    await page.locator('#question').fill('How much vacation?');
    await page.keyboard.press('Control+Enter');
    await page.locator('[data-run-state=done]').waitFor();
    assert.match(await page.locator('[data-answer]').innerText(), /15 days/);
    await page.locator('[data-round="1"] summary').click();
    await page.locator('[data-repaired]').getByText('a missing brace was added').waitFor();
    // The scripted demo: approve, refuse, stop, cut off.
    await page.unroute('**/v1/models');
    await page.locator('aside select').first().selectOption('scripted-demo');
    await page.getByLabel('Ask me before each call').check();
    await page.keyboard.press('Control+Enter');
    await page.getByRole('button', { name: 'Approve' }).click();
    await page.getByRole('button', { name: 'Refuse' }).last().click();
    await page.locator('[data-run-state=done]').waitFor();
    await page.getByLabel('Ask me before each call').uncheck();
    await page.getByRole('button', { name: /Run again/ }).click();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.locator('[data-run-state=stopped]').waitFor();
    await page.locator('input[type=range]').first().fill('1');
    await page.getByRole('button', { name: /Run again/ }).click();
    await page.locator('[data-run-state=cut]').waitFor();
    await context.close();
  },

  async 'a model that calls tools'() {
    const scripted = await model([
      { text: 'I look it up.', tool: 'search_docs', arguments: "{'query': '연차',}" },
      { text: 'You have 15 days a year.' },
    ]);
    const hub = await Hub.start({ config: `log:\n  level: error\nmodels:\n  - name: scripted\n    base_url: ${scripted.url}\n    tool_mode: native\n` });
    const context = await signedIn(hub);
    const page = await context.newPage();
    await page.goto(`${hub.url}/play`);
    await page.locator('option[value=scripted]').waitFor({ state: 'attached' });
    await page.locator('aside select').first().selectOption('scripted');
    await page.locator('#question').fill('How much vacation is there?');
    await page.keyboard.press('Control+Enter');
    await page.locator('[data-run-state=done]').waitFor();
    assert.match(await page.locator('[data-answer]').innerText(), /15 days/);
    const first = page.locator('[data-round="1"]');
    assert.match(await first.locator('summary').innerText(), /search_docs.*OK/s);
    await first.locator('summary').click();
    await first.getByText('repaired').waitFor();
    assert.match(await first.innerText(), /연차 휴가 규정/);
    // It is kept, and can be read again.
    assert.match(page.url(), /\/play\/run_/);
    await page.reload();
    await page.locator('[data-answer]').getByText('15 days').waitFor();
    await page.locator('.kept a').first().waitFor();
    await page.goto(`${hub.url}/activity`);
    await page.locator('tr[data-call]').getByText('search_docs').first().waitFor();
    await page.goto(`${hub.url}/settings?tab=models`);
    await page.locator('td', { hasText: 'scripted' }).first().waitFor();
    await context.close();
    await hub.end();
    scripted.end();
  },

  async 'models are added, tested, edited and removed without a restart'() {
    const hub = await Hub.start({ config: 'log:\n  level: error\nmodels:\n  - name: fixed\n    base_url: http://127.0.0.1:9/v1\n' });
    const scripted = await model([{ text: 'ok' }]);
    for (const [locale, dark, width, words] of [
      ['en-US', false, 1440, { add: 'Add model', name: 'Name', address: 'Address', key: 'API key', test: 'Test', save: 'Save', edit: 'Edit helper', gone: /unless another entry/, remove: 'Remove helper', yes: 'Remove', wrong: /nothing listens there|cannot be reached/, settings: 'settings', again: /Type the key again/ }],
      ['ko-KR', true, 390, { add: '모델 추가', name: '이름', address: '주소', key: 'API 키', test: '테스트', save: '저장', edit: /helper/, gone: /실패합니다/, remove: /helper/, yes: '제거', wrong: /연결할 수 없습니다/, settings: '설정', again: /키를 다시 입력/ }],
    ]) {
      const context = await signedIn(hub, { locale, dark, width });
      const page = await context.newPage();
      await page.goto(`${hub.url}/settings?tab=models`);
      const fixed = page.locator('[data-model-entry=fixed]');
      await fixed.getByText(words.settings, { exact: true }).waitFor();
      assert.ok(await fixed.getByRole('button').first().isDisabled(), 'a model of the file is changed in the file');
      await page.getByRole('button', { name: words.add }).click();
      const form = page.getByRole('dialog');
      await form.locator('[data-setting=name] input').fill('helper');
      await form.locator('[data-setting=base_url] input').fill('http://127.0.0.1:9/v1');
      await form.getByRole('button', { name: words.test, exact: true }).click();
      await form.locator('[data-tested=failed]').getByText(words.wrong).waitFor();
      await form.locator('[data-setting=base_url] input').fill(scripted.url);
      await form.locator('[data-setting=api_key] input').fill('canary-key');
      await form.getByRole('button', { name: words.test, exact: true }).click();
      await form.locator('[data-tested=ok]').waitFor();
      assert.ok(!(await hub.api('GET', '/api/models')).some((it) => it.name === 'helper'), 'a test saves nothing');
      await form.getByRole('button', { name: words.save, exact: true }).click();
      const row = page.locator('[data-model-entry=helper]');
      await row.waitFor();
      await page.locator('[data-model=helper]').getByRole('button').click();
      await page.locator('[data-model=helper] .ok').waitFor();
      // The key is kept, and stays with its address.
      await row.getByRole('button').first().click();
      await form.locator('[data-setting=api_key] input').waitFor();
      assert.equal(await form.locator('[data-setting=api_key] input').inputValue(), '***');
      await form.locator('[data-setting=base_url] input').fill('http://127.0.0.1:9/v1');
      await form.getByRole('button', { name: words.save, exact: true }).click();
      await form.getByText(words.again).first().waitFor();
      await page.keyboard.press('Escape');
      await form.waitFor({ state: 'detached' });
      await row.getByRole('button').nth(1).click();
      await page.getByRole('dialog').getByText(words.gone).waitFor();
      await page.getByRole('dialog').getByRole('button', { name: words.yes, exact: true }).click();
      await row.waitFor({ state: 'detached' });
      await context.close();
    }
    await hub.end();
    scripted.end();
  },

  async 'clients of every API of models get their lines, with a token that was just made'(hub) {
    const clients = {
      'Claude Code': [`ANTHROPIC_BASE_URL=${hub.url}`, 'ANTHROPIC_AUTH_TOKEN=', 'ANTHROPIC_MODEL='],
      Codex: [`base_url = "${hub.url}/v1"`, 'wire_api = "responses"', 'model_provider = "maru"'],
      'Clients of Ollama': [`OLLAMA_HOST=${hub.url}`, `Address  ${hub.url}`],
    };
    for (const locale of ['en-US', 'ko-KR']) {
      const context = await signedIn(hub, { locale });
      const page = await context.newPage();
      await page.goto(`${hub.url}/connect`);
      const lines = page.locator('[data-section="connect.models"]');
      for (const [title, expected] of Object.entries(clients)) {
        await page.locator('.clients').getByRole('button', { name: title, exact: true }).click();
        await page.locator('.clients [aria-pressed=true]').getByText(title).waitFor();
        const text = (await lines.locator('pre').allInnerTexts()).join('\n');
        for (const line of expected) assert.ok(text.includes(line), `${title}: ${line} is not in ${text}`);
      }
      await page.locator('.options input[type=checkbox]').check();
      await page.locator('.options button').click();
      await lines.getByText(/maru_[A-Za-z0-9_-]{20,}/).first().waitFor();
      await context.close();
    }
  },

  async 'a host is allowed where only the list is in the way, from the catalogue'() {
    const hub = await Hub.start();
    for (const [locale, words] of [['en-US', { allow: 'Allow mcp.deepwiki.com', why: /not in the list of allowed hosts/ }], ['ko-KR', { allow: 'mcp.deepwiki.com 허용', why: /허용 목록에 없습니다/ }]]) {
      const context = await signedIn(hub, { locale });
      const page = await context.newPage();
      await page.goto(hub.url);
      await page.locator('[data-known=deepwiki]').click();
      await page.getByRole('dialog').getByRole('textbox').first().waitFor();
      assert.match(await page.getByRole('dialog').getByRole('textbox').first().inputValue(), /mcp\.deepwiki\.com/);
      await page.locator('.end .btn').first().click();
      await page.getByText(words.why).waitFor();
      await page.getByRole('button', { name: words.allow }).click();
      // It is tried again by itself; what this machine can reach is another matter.
      await page.locator('[data-trial]').waitFor({ timeout: 60_000 });
      assert.deepEqual((await hub.api('GET', '/api/allowed-hosts')).added, ['mcp.deepwiki.com']);
      assert.match(JSON.stringify(await hub.api('GET', '/api/audit')), /PUT \/api\/allowed-hosts/);
      await page.goto(`${hub.url}/settings?q=allowed_hosts`);
      await page.locator('[data-allowed-hosts]').getByRole('button').click();
      await page.locator('[data-allowed-hosts]').waitFor({ state: 'detached' });
      assert.deepEqual((await hub.api('GET', '/api/allowed-hosts')).added, []);
      await context.close();
    }
    await hub.end();
  },

  async 'settings explain every key, and rows open as a whole'(hub) {
    const context = await signedIn(hub);
    const page = await context.newPage();
    await page.goto(`${hub.url}/settings`);
    await page.locator('[data-key="limits.max_sessions"]').waitFor();
    const unexplained = await page.locator('[data-key]').evaluateAll((rows) => rows.filter((it) => !it.querySelector('.what').textContent.trim()).map((it) => it.dataset.key));
    assert.deepEqual(unexplained, []);
    await page.locator('[data-find]').fill('zzz');
    await page.getByText('No setting matches “zzz”').waitFor();
    await page.locator('[data-find]').fill('models');
    await page.locator('[data-key=models] a').click();
    await page.getByRole('button', { name: 'Add model' }).waitFor();
    await page.goto(`${hub.url}/servers`);
    await page.locator('tr[data-server=everything] .c-tools').click();
    await page.getByRole('heading', { name: 'everything' }).waitFor();
    await page.goto(`${hub.url}/tools`);
    await page.locator('[data-tool=everything__echo] .params').click();
    await page.getByRole('heading', { name: 'everything__echo' }).waitFor();
    await context.close();
  },

  async 'nine tabs, one stream, a restart and an update'() {
    const hub = await Hub.start({ config });
    const context = await signedIn(hub);
    const pages = [];
    for (let n = 0; n < 9; n++) {
      const page = await context.newPage();
      await page.goto(`${hub.url}/servers`);
      await page.locator('tr[data-server=reports]').waitFor();
      pages.push(page);
    }
    await pages[8].locator('tr[data-server=reports] [data-status=CONNECTED]').waitFor();
    await pages[8].locator('tr[data-server=reports] button').click();
    await status(pages[3], 'reports', 'DISCONNECTED');
    await pages[0].close();
    await pages[8].locator('tr[data-server=reports] button').click();
    await status(pages[4], 'reports', 'CONNECTED');
    // The hub goes and comes back; whoever was signed in still is.
    await hub.stop();
    await pages[5].locator('[data-live=false]').waitFor();
    await pages[5].locator('tr[data-server=reports]').waitFor();
    await hub.run();
    await pages[5].locator('[data-live=true]').waitFor({ timeout: 20_000 });
    await status(pages[5], 'reports', 'CONNECTED');
    assert.ok(await pages[5].getByRole('button', { name: /Add server/ }).isEnabled());
    assert.equal(await pages[5].getByRole('button', { name: /Add server/ }).getAttribute('aria-disabled'), 'false');
    for (const page of pages.slice(2)) await page.close();
    // A page that was open while the hub was updated.
    const page = pages[1];
    const other = await (await fetch(`${hub.url}/assets/v/another/app.js`)).status;
    assert.equal(other, 404);
    const snapshot = (build) => `event: snapshot\ndata: ${JSON.stringify({ servers: [], clients: [], tools: { count: 0, off: 0 }, version: '9', build })}\n\n`;
    let streams = 0;
    await page.route('**/api/events', (route) => (streams++ ? route.continue() : route.fulfill({ contentType: 'text/event-stream', body: snapshot('one') + snapshot('another') })));
    await page.goto(`${hub.url}/servers`);
    await page.waitForEvent('load');
    await page.locator('tr[data-server=reports]').waitFor();
    await context.close();
    await hub.end();
  },

  async 'who may do what'() {
    const hub = await Hub.start({ config: 'require_token: true\nlog:\n  level: error\n' });
    const context = await open({ errors });
    const page = await context.newPage();
    await page.goto(`${hub.url}/servers`);
    await page.getByRole('heading', { name: 'Sign in to maru' }).waitFor();
    await page.getByLabel('Token').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').waitFor();
    await page.getByLabel('Token').fill(hub.token);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('heading', { name: 'Nothing is connected yet' }).waitFor();
    // A change by cookie alone is refused: another site cannot send the header.
    const forged = await context.request.post(`${hub.url}/api/mcp/servers`, { data: {} });
    assert.equal(forged.status(), 403);
    const head = await context.request.get(`${hub.url}/`);
    const policy = head.headers()['content-security-policy'];
    assert.match(policy, /default-src 'none'; script-src 'self'; style-src 'self' 'nonce-[\w-]+'/);
    assert.equal(head.headers()['cache-control'], 'no-store');
    const asset = (await head.text()).match(/\/assets\/v\/[^"]+\.js/)[0];
    assert.match((await context.request.get(hub.url + asset)).headers()['cache-control'], /immutable/);
    await context.close();
    await hub.end();
    // Without a token, on this machine: may call, may not change.
    const local = await Hub.start({ config });
    const visitor = await open({ errors });
    const guest = await visitor.newPage();
    await guest.goto(`${local.url}/servers`);
    await guest.locator('tr[data-server=reports]').waitFor();
    assert.equal(await guest.getByRole('button', { name: /Add server/ }).getAttribute('aria-disabled'), 'true');
    assert.match(await guest.getByRole('button', { name: /Add server/ }).getAttribute('title'), /admin/);
    await guest.goto(`${local.url}/tools/maru/search_docs`);
    await guest.locator('[data-arg=query] textarea').fill('연차');
    await guest.keyboard.press('Control+Enter');
    await guest.locator('[data-verdict=ok]').waitFor();
    assert.equal((await visitor.request.get(`${local.url}/api/config`)).status(), 401);
    await visitor.close();
    await local.end();
  },

  async 'a person is invited, allows a client in both languages, and the admin revokes it'() {
    const hub = await Hub.start({ config: 'log: {level: warn}\nrequire_token: true\noauth: {serve: true}\n' });
    // Another site, as its host differs.
    const origin = 'http://localhost:9';
    const registration = { client_name: 'Claude', redirect_uris: [`${origin}/callback`], token_endpoint_auth_method: 'none' };
    const client = await hub.api('POST', '/oauth/register', registration);
    const query = new URLSearchParams({ response_type: 'code', client_id: client.client_id, redirect_uri: `${origin}/callback`, state: 's', code_challenge: 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM', code_challenge_method: 'S256' });
    const admin = await signedIn(hub);
    const settings = await admin.newPage();
    await settings.goto(`${hub.url}/settings?tab=access`);
    for (const [locale, words] of [
      ['en-US', { name: 'kim', title: 'Allow Claude to use maru?', once: 'Passphrase once more', passphrase: 'Passphrase', save: 'Save and sign in', allow: 'Allow' }],
      ['ko-KR', { name: 'lee', title: 'Claude 애플리케이션에 maru 사용을 허용할까요?', once: '암호 다시 입력', passphrase: '암호', save: '저장하고 로그인', allow: '허용' }],
    ]) {
      await settings.getByLabel('Name of the account').fill(words.name);
      await settings.getByRole('button', { name: 'Invite', exact: true }).click();
      const invitation = settings.locator('.notice code', { hasText: '/oauth/invitation' });
      await invitation.waitFor();
      const link = await invitation.innerText();
      await settings.locator(`[data-account=${words.name}]`).waitFor();
      const context = await open({ locale });
      const page = await context.newPage();
      await page.goto(link);
      await page.getByLabel(words.passphrase, { exact: true }).fill('eleven plus one');
      await page.getByLabel(words.once, { exact: true }).fill('eleven plus one');
      await page.getByRole('button', { name: words.save }).click();
      await page.waitForURL(`${hub.url}/**`);
      // Another site leads here, as a client does.
      await page.route(`${origin}/**`, (route) => {
        const start = `<a href="${hub.url}/oauth/authorize?${query}">start</a>`;
        const html = route.request().url().includes('/callback') ? 'back' : start;
        return route.fulfill({ contentType: 'text/html', body: html.replaceAll('&', '&amp;') });
      });
      await page.goto(`${origin}/`);
      await page.getByRole('link', { name: 'start' }).click();
      await page.getByRole('heading', { name: words.title }).waitFor();
      assert.match(await page.locator('main').innerText(), /localhost:9/);
      if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, `consent-${locale}.png`), fullPage: true });
      await page.getByRole('button', { name: words.allow, exact: true }).click();
      await page.waitForURL(`${origin}/callback?**`);
      const returned = new URL(page.url()).searchParams;
      assert.equal(returned.get('state'), 's');
      const form = { grant_type: 'authorization_code', client_id: client.client_id, code: returned.get('code'), code_verifier: 'dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk', redirect_uri: `${origin}/callback` };
      const answer = await fetch(`${hub.url}/oauth/token`, { method: 'POST', body: new URLSearchParams(form) });
      assert.equal(answer.status, 200);
      const { access_token: token } = await answer.json();
      assert.ok((await hub.api('GET', '/api/tools', undefined, token)).length);
      await settings.reload();
      const grant = settings.locator('[data-grant]', { hasText: words.name });
      await grant.waitFor();
      if (process.env.PICTURES) await settings.screenshot({ path: join(process.env.PICTURES, `access-${locale}.png`), fullPage: true });
      await grant.getByRole('button').click();
      await settings.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
      await grant.waitFor({ state: 'detached' });
      await assert.rejects(hub.api('GET', '/api/tools', undefined, token), { status: 401 });
      await context.close();
    }
    await admin.close();
    await hub.end();
  },

  async 'a server is signed in to by its button, in both languages'() {
    const [hub, issuer] = [await Hub.start(), await Issuer.start()];
    for (const [locale, words] of [
      ['en-US', { name: 'tracker', needs: 'Sign-in required', button: 'Sign in', done: 'maru is signed in to tracker. You can close this window.' }],
      ['ko-KR', { name: 'wiki', needs: '로그인 필요', button: '로그인', done: 'maru가 wiki에 로그인했습니다. 이 창을 닫아도 됩니다.' }],
    ]) {
      await hub.api('POST', '/api/mcp/servers', { name: words.name, transportType: 'HTTP', config: { url: issuer.server }, autoConnect: true });
      const context = await signedIn(hub, { locale });
      const page = await context.newPage();
      await page.goto(`${hub.url}/servers`);
      await status(page, words.name, 'NEEDS_SIGN_IN');
      const row = page.locator(`tr[data-server=${words.name}]`);
      assert.match(await row.innerText(), new RegExp(words.needs));
      await row.getByRole('button', { name: words.button }).click();
      await page.getByText(words.done).waitFor();
      await page.goto(`${hub.url}/servers`);
      await status(page, words.name, 'CONNECTED');
      await context.close();
    }
    issuer.end();
    await hub.end();
  },

  async 'a person signs in at the company\'s issuer, in both languages'() {
    const [issuer, port] = [await Issuer.start(), await freePort()];
    const config = JSON.stringify({ require_token: true, log: { level: 'warn' }, oauth: { serve: true }, oidc: await issuer.settingsFor(port) });
    const hub = await Hub.start({ config, port });
    const client = await hub.api('POST', '/oauth/register', { client_name: 'Claude', redirect_uris: ['http://localhost:9/callback'], token_endpoint_auth_method: 'none' });
    const query = new URLSearchParams({ response_type: 'code', client_id: client.client_id, redirect_uri: 'http://localhost:9/callback', code_challenge: 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM', code_challenge_method: 'S256' });
    for (const [locale, words] of [
      ['en-US', { console: 'Company account', page: 'Sign in with the company\'s account', title: 'Allow Claude to use maru?' }],
      ['ko-KR', { console: '회사 계정', page: '회사 계정으로 로그인', title: 'Claude 애플리케이션에 maru 사용을 허용할까요?' }],
    ]) {
      // From the console, and from the page of a client.
      for (const [path, link, arrived] of [
        ['/', words.console, (page) => page.locator('a[href="/tools"]').first()],
        [`/oauth/authorize?${query}`, words.page, (page) => page.getByRole('heading', { name: words.title })],
      ]) {
        const context = await open({ errors, locale });
        const page = await context.newPage();
        await page.goto(hub.url + path);
        const back = page.waitForResponse((it) => it.url().startsWith(`${hub.url}/oauth/oidc/callback`));
        await page.getByRole('link', { name: link }).click();
        await back;
        await arrived(page).waitFor();
        const session = await (await context.request.get(`${hub.url}/api/session`)).json();
        assert.deepEqual([session.name, session.role], ['oidc:person', 'agent']);
        await context.close();
      }
    }
    assert.equal((await hub.api('GET', '/api/accounts'))[0].label, 'person@example.com');
    issuer.end();
    await hub.end();
  },

  async 'keyboard, palette and Korean'(hub) {
    const context = await signedIn(hub, { locale: 'ko-KR', dark: true });
    const page = await context.newPage();
    await page.goto(`${hub.url}/servers`);
    await page.getByRole('heading', { name: '서버' }).waitFor();
    await page.locator('tr[data-server=everything]').waitFor();
    assert.equal(await page.evaluate(() => document.documentElement.lang), 'ko');
    await page.keyboard.press('g');
    await page.keyboard.press('t');
    await page.getByRole('heading', { name: '도구', exact: true }).waitFor();
    await page.locator('[data-tool]').first().waitFor();
    await page.keyboard.press('/');
    assert.ok(await page.evaluate(() => document.activeElement.matches('[data-find]')));
    await page.keyboard.press('Escape');
    await page.locator('h1').click();
    await page.keyboard.press('Control+k');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.type('echo');
    await page.getByRole('option', { name: /everything__echo/ }).waitFor();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'everything__echo' }).waitFor();
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: '키보드' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'English' }).click();
    await page.getByRole('link', { name: 'Servers' }).waitFor();
    await context.close();
  },

  async 'a server is added, a tool tried, a token made and a call read by keyboard alone'() {
    const hub = await Hub.start();
    const context = await signedIn(hub);
    const page = await context.newPage();
    const press = (...keys) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
    /** Tab until `locator` has the focus; whatever has it on the way must show it. */
    const reach = async (locator, key = 'Tab') => {
      await locator.waitFor();
      for (let n = 0; n < 120; n++) {
        if (await locator.evaluate((it) => it === document.activeElement)) return;
        await page.keyboard.press(key);
        const hidden = await page.evaluate(() => {
          const at = document.activeElement;
          const box = at.getBoundingClientRect();
          return at !== document.body && (box.width === 0 || getComputedStyle(at).visibility === 'hidden') ? at.outerHTML.slice(0, 200) : '';
        });
        assert.equal(hidden, '', 'the focus is seen');
      }
      assert.fail(`${locator} is not reached by ${key}`);
    };
    await page.goto(`${hub.url}/servers`);
    await page.getByRole('heading', { name: 'Nothing is connected yet' }).waitFor();
    await press('n');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.type(`${fixture} stdio`);
    await reach(page.getByRole('dialog').getByRole('button', { name: 'Add', exact: true }));
    await press('Enter');
    const row = page.locator('tr[data-server]').first();
    await row.locator('[data-status=CONNECTED]').waitFor();
    await reach(row.locator('a.name'));
    await press('Enter');
    await page.locator('[data-tool]').first().waitFor();
    await press('g', 't');
    await page.getByRole('heading', { name: 'Tools', exact: true }).waitFor();
    await press('/');
    await page.keyboard.type('search_docs');
    await press('Escape');
    await reach(page.locator('[data-tool=search_docs]').getByRole('link', { name: /Try/ }));
    await press('Enter');
    await reach(page.locator('[data-arg=query] textarea'));
    await page.keyboard.type('vacation');
    await press('Control+Enter');
    await page.locator('[data-verdict=ok]').waitFor();
    await page.goto(`${hub.url}/settings`);
    await reach(page.getByRole('tab', { name: 'Configuration' }));
    await press('ArrowRight', 'ArrowRight', 'ArrowRight');
    await page.getByRole('tab', { name: 'Access', selected: true }).waitFor();
    const form = page.locator('form.form');
    await reach(form.locator('input.mono').first());
    await page.keyboard.type('by-keyboard');
    await press('Enter');
    await page.locator('[data-token=by-keyboard]').waitFor();
    await page.goto(`${hub.url}/activity`);
    await reach(page.locator('tr[data-call]').first());
    await press('Enter');
    await page.getByRole('dialog').waitFor();
    await press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    assert.ok(await page.locator('tr[data-call]').first().evaluate((it) => it === document.activeElement), 'the focus returns to where it was');
    await context.close();
    await hub.end();
  },

  async 'axe, in both themes and at three widths'(hub) {
    const places = ['/servers', '/servers/everything', '/servers/everything?tab=messages', '/servers/everything?tab=library', '/no/such/page', '/servers/warehouse?tab=settings', '/servers/wrapped', '/servers?add=1', '/tools', '/tools/maru/query_bga_database', '/tools/new', '/tools/new?step=2', '/tools/new?step=3', '/custom-tools', '/play', '/activity', '/activity?range=between&over=30d&by=callers', '/settings', '/settings?tab=sources', '/settings?tab=models', '/settings?tab=access', '/settings?tab=limits', '/settings?tab=audit', '/settings?tab=transfer', '/settings?tab=about', '/connect'];
    await hub.api('POST', '/api/mcp/servers', { name: 'wrapped', transportType: 'STDIO', config: { command: 'bash', args: ['-c', `exec ${fixture} stdio`] }, autoConnect: true, acceptWarnings: true });
    const found = [];
    for (const look of [...[1440, 1024, 390].flatMap((width) => [{ dark: false, width, axe: true }, { dark: true, width, axe: true }]), { dark: false, width: 1920 }]) {
      const context = await signedIn(hub, look);
      const page = await context.newPage();
      for (const place of places) {
        await page.goto(hub.url + place);
        await page.locator('h1').first().waitFor().catch((error) => {
          throw new Error(`${place} at ${look.width} ${look.dark ? 'dark' : 'light'}: ${error.message}`);
        });
        await sleep(look.axe ? 300 : 120);
        const faults = look.axe ? await faultsOf(page) : [];
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (wide > 0 && !look.axe) faults.push(`${wide} px too wide`);
        for (const it of faults) found.push(`${place} ${look.dark ? 'dark' : 'light'} ${look.width}: ${it}`);
      }
      await context.close();
    }
    assert.deepEqual(found, []);
  },
};

tests['pages of two servers in a host of MCP Apps'] = () => apps(errors);

tests['toolsets, what clients see of a tool, and a registry'] = async () => {
  const registry = join(mkdtempSync(join(tmpdir(), 'maru-registry-')), 'registry.json');
  const packages = [{ registryType: 'npm', identifier: 'weather', version: '1.0.0', environmentVariables: [{ name: 'API_KEY' }] }];
  writeFileSync(registry, JSON.stringify({ servers: [{ server: { name: 'io.example/weather', description: 'Tells the weather', version: '1.0.0', packages } }] }));
  const hub = await Hub.start({ config: `log:\n  level: warn\nmcp:\n  registry: ${registry}\n` });
  const context = await signedIn(hub);
  const page = await context.newPage();
  await page.goto(`${hub.url}/tools`);
  await page.getByRole('link', { name: 'Toolsets' }).click();
  await page.getByRole('button', { name: 'New toolset' }).click();
  const form = page.getByRole('dialog');
  await form.getByLabel('Name', { exact: true }).fill('people');
  await form.getByLabel(/^Include/).fill('kind:x');
  await form.getByRole('button', { name: 'Save' }).click();
  await form.getByText('Invalid include.').waitFor();
  await form.getByLabel(/^Include/).fill('get_*');
  await form.getByLabel(/^Exclude/).fill('*_search');
  await form.getByRole('combobox').selectOption('search');
  await form.getByRole('button', { name: 'Save' }).click();
  await page.locator('[data-toolset=people]').getByText('3 tools').waitFor();
  const [saved] = await hub.api('GET', '/api/toolsets');
  assert.deepEqual([saved.include, saved.exclude, saved.tools], [['get_*'], ['*_search'], 'search']);
  if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, 'toolsets.png') });

  await page.goto(`${hub.url}/tools/maru/get_employee_info`);
  const seen = page.locator('[data-override]');
  await seen.getByText('as its server describes it').waitFor();
  await seen.getByText('Change what clients see').click();
  await seen.getByLabel('Description', { exact: true }).fill('Says who somebody is.');
  await seen.getByLabel('employee_id: value').selectOption('fixed');
  await seen.getByLabel('employee_id: JSON').fill('"EMP001"');
  await seen.getByRole('button', { name: 'Save' }).click();
  await seen.getByRole('cell', { name: '/inputSchema/properties/employee_id' }).waitFor();
  if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, 'override.png'), fullPage: true });
  const change = (await hub.api('GET', '/api/tools/get_employee_info/override')).override;
  assert.deepEqual(change, { description: 'Says who somebody is.', parameters: { employee_id: { fixed: 'EMP001' } } });

  await page.goto(`${hub.url}/servers`);
  await page.getByRole('button', { name: 'Add server' }).first().click();
  const drawer = page.getByRole('dialog');
  await drawer.getByLabel('Name or description').fill('weather');
  await drawer.getByRole('button', { name: 'Search', exact: true }).click();
  if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, 'registry.png') });
  await drawer.locator('[data-found="io.example/weather"]').getByRole('button', { name: 'npm' }).click();
  await drawer.locator('[data-draft=weather]').waitFor();
  assert.match(await drawer.getByRole('textbox').first().inputValue(), /weather@1\.0\.0/);
  await context.close();
  await hub.end();
};

const began = Date.now();
let shared;
let failed = 0;
for (const [name, test] of Object.entries({ ...tests, ...moving, ...trying, ...watching, ...accessible })) {
  if (wanted.length && !wanted.some((it) => name.includes(it))) continue;
  const start = Date.now();
  try {
    if (test.length) shared ??= await scene();
    await test(shared);
    const strange = errors.splice(0);
    assert.deepEqual(strange, [], 'nothing is complained of in the browser');
    console.log(`ok ${name} (${((Date.now() - start) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed++;
    errors.splice(0);
    console.log(`FAILED ${name} (${((Date.now() - start) / 1000).toFixed(1)} s)\n${error.stack}`);
  }
}
await closeBrowser();
await shared?.end();
console.log(`${failed ? `${failed} failed` : 'all passed'} in ${((Date.now() - began) / 1000).toFixed(0)} s`);
process.exit(failed ? 1 : 0);
