// openai-node and the Vercel AI SDK (both of its OpenAI providers) against the
// OpenAI endpoint. Usage: openai_client.mjs BASE_URL
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";

const baseURL = process.argv[2];
const messages = [{ role: "user", content: "Weather in Seoul?" }];
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const tools = [{ type: "function", function: { name: "get_weather", description: "Weather", parameters: schema } }];
const fileSchema = { type: "object", properties: { path: { type: "string" }, content: { type: "string" } }, required: ["path", "content"], additionalProperties: false };
const fileTools = [{ type: "function", function: { name: "write_file", description: "Writes a file", parameters: fileSchema } }];
const callsOf = (message) => (message.tool_calls ?? []).map((it) => [it.function.name, JSON.parse(it.function.arguments)]);

async function openaiNode() {
  const client = new OpenAI({ baseURL, apiKey: "local", maxRetries: 0 });
  const text = await client.chat.completions.create({ model: "text", messages });
  const call = await client.chat.completions.create({ model: "call", messages, tools });
  let pieces = "";
  for await (const chunk of await client.chat.completions.create({ model: "text", messages, stream: true })) {
    pieces += chunk.choices[0]?.delta?.content ?? "";
  }
  const stream = client.chat.completions.stream({ model: "call", messages, tools });
  const streamed = (await stream.finalChatCompletion()).choices[0];
  let filePieces = 0;
  const fileStream = client.chat.completions.stream({ model: "file", messages, tools: fileTools });
  fileStream.on("tool_calls.function.arguments.delta", (it) => (filePieces += it.arguments_delta ? 1 : 0));
  const file = (await fileStream.finalChatCompletion()).choices[0];
  const code = { model: "text", prompt: "def f():", suffix: "f()" };
  const continued = (await client.completions.create(code)).choices[0];
  let continuedPieces = "";
  for await (const chunk of await client.completions.create({ ...code, stream: true })) continuedPieces += chunk.choices[0].text;
  let broken = "no error";
  try {
    for await (const _ of await client.chat.completions.create({ model: "broken", messages, stream: true }));
  } catch (error) {
    broken = error.constructor.name;
  }
  return {
    text: text.choices[0].message.content,
    call: callsOf(call.choices[0].message),
    finish: [text.choices[0].finish_reason, call.choices[0].finish_reason, streamed.finish_reason],
    streamed_text: pieces,
    streamed_call: callsOf(streamed.message),
    file: callsOf(file.message),
    file_pieces: filePieces,
    continued: [continued.text, continuedPieces, continued.finish_reason],
    broken,
  };
}

async function vercel(model, textModel) {
  const offered = { get_weather: tool({ description: "Weather", inputSchema: jsonSchema(schema) }) };
  const prompt = "Weather in Seoul?";
  const simple = (calls) => calls.map((it) => [it.toolName, it.input]);
  const text = await generateText({ model: model("text"), prompt, maxRetries: 0 });
  const call = await generateText({ model: model("call"), prompt, tools: offered, maxRetries: 0 });
  const streamedText = streamText({ model: model("text"), prompt, maxRetries: 0 });
  const write = { write_file: tool({ description: "Writes a file", inputSchema: jsonSchema(fileSchema) }) };
  const file = streamText({ model: model("file"), prompt, tools: write, maxRetries: 0 });
  let filePieces = 0;
  for await (const part of file.fullStream) filePieces += part.type === "tool-input-delta" && part.delta ? 1 : 0;
  const streamedCall = streamText({ model: model("call"), prompt, tools: offered, maxRetries: 0 });
  let continued;
  if (textModel) {
    const whole = await generateText({ model: textModel("text"), prompt, maxRetries: 0 });
    const streamed = streamText({ model: textModel("text"), prompt, maxRetries: 0 });
    continued = [whole.text, await streamed.text, whole.finishReason];
  }
  return {
    continued,
    text: text.text,
    call: simple(call.toolCalls),
    finish: [text.finishReason, call.finishReason, await streamedCall.finishReason],
    streamed_text: await streamedText.text,
    streamed_call: simple(await streamedCall.toolCalls),
    file: simple(await file.toolCalls),
    file_pieces: filePieces,
  };
}

const compatible = createOpenAICompatible({ name: "maru", baseURL, apiKey: "local" });
const openai = createOpenAI({ baseURL, apiKey: "local" });
console.log(
  JSON.stringify({
    openai: await openaiNode(),
    compatible: await vercel((name) => compatible(name), null),
    vercel: await vercel((name) => openai.chat(name), (name) => openai.completion(name)),
  }),
);
