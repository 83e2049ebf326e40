// Journeys of what a server offers and asks: prompts, resources, progress, questions, files.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { inBothLanguages } from './session.mjs';

const words = {
  'en-US': { run: /^Run/, stop: 'Stop', send: 'Send', decline: 'Decline', render: 'Render', save: 'Save' },
  'ko-KR': { run: /^실행/, stop: '중지', send: '보내기', decline: '거절', render: '렌더링', save: '저장' },
};

/** Fills a field of a form, also one that is not sent yet. */
async function give(scope, name, text) {
  const field = scope.locator(`[data-arg=${name}]`);
  await field.waitFor();
  const input = field.locator(`#arg-${name}`);
  if (!(await input.count())) await field.getByRole('checkbox').check();
  await input.fill(text);
}

export const trying = {
  async 'a long call shows its progress and is cancelled'(hub) {
    await inBothLanguages(hub, words, async (page, word) => {
      await page.goto(`${hub.url}/servers`);
      await page.locator('tr[data-server=everything] [data-status=CONNECTED]').waitFor({ timeout: 60_000 });
      await page.goto(`${hub.url}/tools/everything/trigger-long-running-operation`);
      await give(page, 'duration', '30');
      await give(page, 'steps', '60');
      await page.getByRole('button', { name: word.run }).click();
      await page.locator('[data-running] progress').waitFor();
      assert.match(await page.locator('[data-running]').innerText(), /60/);
      await page.getByRole('button', { name: word.stop, exact: true }).click();
      await page.locator('[data-running]').waitFor({ state: 'detached' });
      const [call] = (await hub.api('GET', '/api/calls?tool=everything__trigger-long-running-operation&limit=1')).calls;
      assert.equal(call.outcome, 'cancelled', 'the server is told');
      await page.goto(`${hub.url}/tools/fixture/test_tool_with_logging`);
      await page.getByRole('button', { name: word.run }).click();
      await page.locator('[data-verdict=ok]').waitFor();
      await page.locator('[data-logs] summary').click();
      await page.locator('[data-logs]').getByText('Tool processing data').waitFor();
    });
  },

  async 'the questions of a tool are answered'(hub) {
    await inBothLanguages(hub, words, async (page, word) => {
      await page.goto(`${hub.url}/tools/fixture/test_elicitation`);
      await give(page, 'message', 'Who are you?');
      await page.getByRole('button', { name: word.run }).click();
      const question = page.locator('[data-question]');
      await question.getByText('Who are you?').waitFor();
      await give(question, 'username', 'kim');
      await give(question, 'email', 'kim@example.com');
      await question.getByRole('button', { name: word.send }).click();
      await page.locator('[data-verdict=ok]').waitFor();
      await page.locator('[data-result]').getByText(/kim@example\.com/).waitFor();
      await page.getByRole('button', { name: word.run }).click();
      await question.getByRole('button', { name: word.decline }).click();
      await page.locator('[data-result]').getByText(/decline/).waitFor();
      // A model is asked for, and a person answers.
      await page.goto(`${hub.url}/tools/fixture/test_sampling`);
      await give(page, 'prompt', 'Say hello');
      await page.getByRole('button', { name: word.run }).click();
      await question.locator('pre').getByText('Say hello').waitFor();
      await question.locator('label textarea').fill('안녕하세요');
      await question.getByRole('button', { name: word.send }).click();
      await page.locator('[data-result]').getByText(/안녕하세요/).waitFor();
    });
  },

  async 'prompts and resources are shown and tried'(hub) {
    await inBothLanguages(hub, words, async (page, word) => {
      await page.goto(`${hub.url}/servers/fixture?tab=library`);
      await page.locator('[data-entry$=test_prompt_with_arguments]').click();
      const dialog = page.getByRole('dialog');
      await give(dialog, 'arg1', '하나');
      await give(dialog, 'arg2', 'two');
      await dialog.getByRole('button', { name: word.render }).click();
      await dialog.locator('[data-tried] pre').getByText(/하나.*two/).waitFor();
      await page.keyboard.press('Escape');
      await page.locator('[data-entry*="static-text"]').click();
      await dialog.locator('[data-tried] pre').waitFor();
      await page.keyboard.press('Escape');
      await page.locator('[data-entry*="static-binary"]').click();
      await dialog.locator('[data-tried] img').waitFor();
    });
  },

  async 'a sound and a file of a result are saved'(hub) {
    await inBothLanguages(hub, words, async (page, word) => {
      await page.goto(`${hub.url}/tools/fixture/test_audio_content`);
      await page.getByRole('button', { name: word.run }).click();
      const file = page.locator('[data-result-file]');
      await file.getByText('audio/wav').waitFor();
      const [download] = await Promise.all([page.waitForEvent('download'), file.getByRole('button', { name: word.save }).click()]);
      assert.equal(readFileSync(await download.path()).subarray(0, 4).toString(), 'RIFF');
      await page.goto(`${hub.url}/tools/fixture/test_embedded_resource`);
      await page.getByRole('button', { name: word.run }).click();
      await page.locator('[data-verdict=ok]').waitFor();
      assert.ok((await page.locator('[data-result]').innerText()).trim());
    });
  },
};
