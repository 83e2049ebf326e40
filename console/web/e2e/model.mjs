// A model that says what it was told to say, on the wire as OpenAI's API has it.
import { createServer } from 'node:http';

/** Answers the nth question with the nth of `lines`; a line with `tool` calls one. */
export async function model(lines) {
  let asked = 0;
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => (body += chunk));
    request.on('end', () => {
      if (request.url.endsWith('/models')) return response.end(JSON.stringify({ object: 'list', data: [{ id: 'scripted', object: 'model' }] }));
      const line = lines[Math.min(asked++, lines.length - 1)];
      const call = line.tool && { index: 0, id: `call_${asked}`, type: 'function', function: { name: line.tool, arguments: line.arguments } };
      const message = call ? { role: 'assistant', content: line.text ?? '', tool_calls: [call] } : { role: 'assistant', content: line.text };
      const finish = call ? 'tool_calls' : 'stop';
      const usage = { prompt_tokens: 100, completion_tokens: 20, total_tokens: 120 };
      const base = { id: 'chat-1', created: 1, model: 'scripted' };
      if (!JSON.parse(body).stream) return response.end(JSON.stringify({ ...base, object: 'chat.completion', choices: [{ index: 0, message, finish_reason: finish }], usage }));
      response.setHeader('content-type', 'text/event-stream');
      const chunk = (delta, reason = null, more = {}) => response.write(`data: ${JSON.stringify({ ...base, object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: reason }], ...more })}\n\n`);
      chunk({ role: 'assistant', content: line.text ?? '' });
      if (call) chunk({ tool_calls: [call] });
      chunk({}, finish, { usage });
      response.end('data: [DONE]\n\n');
    });
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return { url: `http://127.0.0.1:${server.address().port}/v1`, end: () => server.close() };
}
