// The JavaScript client of Ollama against /api of a hub. Usage: ollama_client.mjs ADDRESS
import { Ollama } from 'ollama';

const client = new Ollama({ host: process.argv[2] });
const messages = [{ role: 'user', content: 'Weather in Seoul?' }];
const parameters = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const tools = [{ type: 'function', function: { name: 'get_weather', description: 'Weather of a city', parameters } }];
const read = (calls) => calls.map((it) => [it.function.name, it.function.arguments]);
const join = async (stream, text) => {
  let all = '';
  for await (const part of stream) all += text(part);
  return all;
};

const chat = await client.chat({ model: 'text', messages });
const streamed = await join(await client.chat({ model: 'text', messages, stream: true }), (it) => it.message.content);
const call = (await client.chat({ model: 'call', messages, tools })).message;
const streamedCalls = [];
for await (const part of await client.chat({ model: 'call', messages, tools, stream: true })) streamedCalls.push(...(part.message.tool_calls ?? []));
const results = [...messages, call, { role: 'tool', tool_name: 'get_weather', content: 'rain' }];
const after = await client.chat({ model: 'text', messages: results, options: { temperature: 0.5, num_predict: 9 } });
const formed = await client.chat({ model: 'text', messages, format: 'json', think: false });
const generated = await client.generate({ model: 'text', prompt: 'Hi', system: 'Be brief.' });
const streamedGenerated = await join(await client.generate({ model: 'text', prompt: 'Hi', stream: true }), (it) => it.response);
let missing = 'no error';
try {
  await client.chat({ model: 'missing', messages });
} catch (error) {
  missing = [error.status_code, error.message];
}
console.log(JSON.stringify({
  text: chat.message.content, thinking: chat.message.thinking, reason: chat.done_reason,
  counts: [chat.prompt_eval_count, chat.eval_count], streamed,
  call: read(call.tool_calls), streamed_call: read(streamedCalls),
  after: after.message.content, formed: formed.message.content,
  generated: generated.response, streamed_generated: streamedGenerated,
  models: (await client.list()).models.map((it) => it.model).sort(),
  shown: (await client.show({ model: 'text' })).capabilities, running: (await client.ps()).models.length,
  vectors: (await client.embed({ model: 'any', input: ['a', 'b'] })).embeddings.map((it) => it.length),
  vector: (await client.embeddings({ model: 'any', prompt: 'a' })).embedding.length, missing,
}));
