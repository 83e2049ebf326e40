// @anthropic-ai/sdk, openai-node with the Responses API, and the Vercel AI SDK with the
// providers of both. Usage: model_sdks.mjs HUB_URL
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import Anthropic from "@anthropic-ai/sdk";
import { generateText, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";

// Warnings would stand in front of the result.
globalThis.AI_SDK_LOG_WARNINGS = false;
const hub = process.argv[2];
const messages = [{ role: "user", content: "Weather in Seoul?" }];
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const fileSchema = { type: "object", properties: { path: { type: "string" }, content: { type: "string" } }, required: ["path", "content"], additionalProperties: false };

async function nameOfError(call) {
  try {
    await call();
    return "no error";
  } catch (error) {
    return error.constructor.name;
  }
}

async function anthropicNode() {
  const client = new Anthropic({ baseURL: hub, apiKey: "local", maxRetries: 0 });
  const tools = [{ name: "get_weather", description: "Weather", input_schema: schema }];
  const fileTools = [{ name: "write_file", description: "Writes a file", input_schema: fileSchema }];
  const asked = (model, more) => ({ model, max_tokens: 100, messages, ...more });
  const callsOf = (message) => message.content.filter((it) => it.type === "tool_use").map((it) => [it.name, it.input]);
  const text = await client.messages.create(asked("text"));
  const call = await client.messages.create(asked("call", { tools }));
  let streamedText = "";
  await client.messages.stream(asked("text")).on("text", (it) => (streamedText += it)).finalMessage();
  const streamed = await client.messages.stream(asked("call", { tools })).finalMessage();
  let pieces = 0;
  const file = await client.messages.stream(asked("file", { tools: fileTools })).on("inputJson", (it) => (pieces += it ? 1 : 0)).finalMessage();
  const thinking = { type: "enabled", budget_tokens: 1024 };
  const thought = await client.messages.stream(asked("thinking", { thinking })).finalMessage();
  const again = [...messages, { role: "assistant", content: thought.content }, { role: "user", content: "!" }];
  const answer = await client.messages.create({ model: "text", max_tokens: 100, messages: again });
  return {
    text: text.content[0].text,
    call: callsOf(call),
    finish: [text.stop_reason, call.stop_reason, streamed.stop_reason],
    streamed_text: streamedText,
    streamed_call: callsOf(streamed),
    file: callsOf(file),
    file_pieces: pieces,
    thinking: [thought.content[0].thinking, !!thought.content[0].signature, answer.content[0].text],
    broken: await nameOfError(() => client.messages.stream(asked("broken")).finalMessage()),
    missing: await nameOfError(() => client.messages.create(asked("missing"))),
  };
}

async function openaiNode() {
  const client = new OpenAI({ baseURL: hub + "/v1", apiKey: "local", maxRetries: 0 });
  const tools = [{ type: "function", name: "get_weather", description: "Weather", parameters: schema, strict: false }];
  const fileTools = [{ type: "function", name: "write_file", description: "Writes a file", parameters: fileSchema, strict: false }];
  const asked = (model, more) => ({ model, input: messages, ...more });
  const callsOf = (response) => response.output.filter((it) => it.type === "function_call").map((it) => [it.name, JSON.parse(it.arguments)]);
  const text = await client.responses.create(asked("text"));
  const call = await client.responses.create(asked("call", { tools }));
  let streamedText = "";
  const textStream = client.responses.stream(asked("text")).on("response.output_text.delta", (it) => (streamedText += it.delta));
  await textStream.finalResponse();
  const streamed = await client.responses.stream(asked("call", { tools })).finalResponse();
  let pieces = 0;
  const fileStream = client.responses.stream(asked("file", { tools: fileTools })).on("response.function_call_arguments.delta", (it) => (pieces += it.delta ? 1 : 0));
  const file = await fileStream.finalResponse();
  const thought = await client.responses.stream(asked("thinking", { include: ["reasoning.encrypted_content"] })).finalResponse();
  const again = [...messages, ...thought.output, { role: "user", content: "!" }];
  const answer = await client.responses.create({ model: "text", input: again });
  let broken = "";
  for await (const event of await client.responses.create(asked("broken", { stream: true }))) broken = event.type;
  return {
    text: text.output_text,
    call: callsOf(call),
    finish: [text.status, call.status, streamed.status],
    streamed_text: streamedText,
    streamed_call: callsOf(streamed),
    file: callsOf(file),
    file_pieces: pieces,
    thinking: [thought.output[0].summary[0].text, !!thought.output[0].encrypted_content, answer.output_text],
    broken,
    missing: await nameOfError(() => client.responses.create(asked("missing"))),
  };
}

async function vercel(provider, providerOptions) {
  const tools = { get_weather: tool({ description: "Weather", inputSchema: jsonSchema(schema) }) };
  const fileTools = { write_file: tool({ description: "Writes a file", inputSchema: jsonSchema(fileSchema) }) };
  const asked = (model, more) => ({ model: provider(model), messages, maxRetries: 0, providerOptions, ...more });
  const simple = (calls) => calls.map((it) => [it.toolName, it.input]);
  const text = await generateText(asked("text"));
  const call = await generateText(asked("call", { tools }));
  let streamedText = "";
  for await (const piece of streamText(asked("text")).textStream) streamedText += piece;
  const streamed = streamText(asked("call", { tools }));
  const streamedCall = simple(await streamed.toolCalls);
  const file = streamText(asked("file", { tools: fileTools }));
  let pieces = 0;
  for await (const part of file.fullStream) if (part.type === "tool-input-delta" && part.delta) pieces += 1;
  const thought = streamText(asked("thinking"));
  const reasoning = await thought.reasoningText;
  return {
    text: text.text,
    call: simple(call.toolCalls),
    finish: [text.finishReason, call.finishReason, await streamed.finishReason],
    streamed_text: streamedText,
    streamed_call: streamedCall,
    file: simple(await file.toolCalls),
    file_pieces: pieces,
    thinking: [reasoning, true, await thought.text],
    missing: await nameOfError(() => generateText(asked("missing"))),
  };
}

const thinking = { type: "enabled", budgetTokens: 1024 };
const seen = {
  messages: await anthropicNode(),
  responses: await openaiNode(),
  vercel_messages: await vercel(createAnthropic({ baseURL: hub + "/v1", apiKey: "local" }), { anthropic: { thinking } }),
  vercel_responses: await vercel(createOpenAI({ baseURL: hub + "/v1", apiKey: "local" }).responses, { openai: { store: false, include: ["reasoning.encrypted_content"] } }),
};
console.log(JSON.stringify(seen));
