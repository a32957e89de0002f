// The official Node SDKs and the Vercel AI SDK, unmodified, asking a gate one thing after another.
// node grid.mjs BASE_URL KEY [HEADERS [AT_ONCE]] < jobs.json; prints for each job what the SDK saw, as one line of JSON.
//
// A job is { client, way, model, body, tools }: the client's format (or the AI SDK's provider), how it asks (plain, raw,
// helper), and the request's body as that format spells it.

import { subscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import { GoogleGenAI } from '@google/genai';
import { generateText, jsonSchema, streamText, tool } from 'ai';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createGoogleGenerativeAI } from '@ai-sdk/google';

console.log = console.info = console.error; // SDKs talk to them
globalThis.AI_SDK_LOG_WARNINGS = false;

const [url, apiKey, json = '{}', atOnce = '1'] = process.argv.slice(2);
const headers = JSON.parse(json);
const options = { apiKey, defaultHeaders: headers, maxRetries: 0, timeout: 10_000 };
const openai = new OpenAI({ baseURL: `${url}/v1`, ...options });
const anthropic = new Anthropic({ baseURL: url, ...options });
const google = new GoogleGenAI({ apiKey, httpOptions: { baseUrl: url, headers } });
const vercelOpenai = createOpenAI({ baseURL: `${url}/v1`, apiKey, headers });
const vercel = {
  'ai-chat': vercelOpenai.chat,
  'ai-responses': vercelOpenai.responses,
  'ai-completions': vercelOpenai.completion,
  'ai-compatible': createOpenAICompatible({ baseURL: `${url}/v1`, apiKey, headers, name: 'gate', includeUsage: true }),
  'ai-messages': createAnthropic({ baseURL: `${url}/v1`, apiKey, headers }),
  'ai-gemini': createGoogleGenerativeAI({ baseURL: `${url}/v1beta`, apiKey, headers }),
};

async function all(stream) {
  const events = [];
  for await (const event of await stream) events.push(event);
  return { events };
}

const ways = {
  chat: {
    plain: async ({ body }) => ({ answer: await openai.chat.completions.create(body) }),
    raw: ({ body }) => all(openai.chat.completions.create(body)),
    async helper({ body }) {
      const stream = openai.chat.completions.stream({ ...body, stream_options: { include_usage: true } });
      const deltas = [];
      stream.on('content', (delta) => deltas.push(delta));
      return { answer: await stream.finalChatCompletion(), deltas };
    },
  },
  completions: {
    plain: async ({ body }) => ({ answer: await openai.completions.create(body) }),
    raw: ({ body }) => all(openai.completions.create(body)),
  },
  responses: {
    plain: async ({ body }) => ({ answer: await openai.responses.create(body) }),
    raw: ({ body }) => all(openai.responses.create(body)),
    async helper({ body }) {
      const stream = openai.responses.stream(body);
      const deltas = [];
      stream.on('response.output_text.delta', (event) => deltas.push(event.delta));
      return { answer: await stream.finalResponse(), deltas };
    },
  },
  messages: {
    plain: async ({ body }) => ({ answer: await anthropic.messages.create(body) }),
    raw: ({ body }) => all(anthropic.messages.create(body)),
    async helper({ body }) {
      const stream = anthropic.messages.stream(body);
      const deltas = [];
      stream.on('text', (delta) => deltas.push(delta));
      return { answer: await stream.finalMessage(), deltas };
    },
  },
  gemini: {
    plain: async ({ model, body }) => ({ answer: await google.models.generateContent(asked(model, body)) }),
    raw: ({ model, body }) => all(google.models.generateContentStream(asked(model, body))),
    async helper({ model, body }) {
      const chat = google.chats.create({ model, config: asked(model, body).config });
      const heard = await all(chat.sendMessageStream({ message: body.contents[0].parts }));
      if (!chat.getHistory(true).some(({ role }) => role === 'model')) throw new Error('the session dropped the turn');
      return heard;
    },
  },
};
for (const client of Object.keys(vercel)) {
  ways[client] = { plain: (job) => generated(job), raw: (job) => streamed(job) };
}

function asked(model, { contents, systemInstruction, tools, generationConfig }) {
  return { model, contents, config: { systemInstruction, tools, ...generationConfig } };
}

function vercelAsked({ client, model, question, system, tools }) {
  const offered = tools.map(({ name, description, parameters }) => [
    name, tool({ description, inputSchema: jsonSchema(parameters) }),
  ]);
  return {
    model: vercel[client](model),
    ...(client === 'ai-completions' ? { prompt: question } : { system, prompt: question }),
    ...(offered.length ? { tools: Object.fromEntries(offered) } : {}),
    maxRetries: 0,
  };
}

async function generated(job) {
  const { text, reasoningText, toolCalls, finishReason, usage } = await generateText(vercelAsked(job));
  return { text, reasoning: reasoningText ?? '', calls: toolCalls.map(called), finish: finishReason, usage };
}

async function streamed(job) {
  const result = streamText({ ...vercelAsked(job), onError() {} });
  const heard = { text: '', reasoning: '', calls: [], finish: null, usage: null };
  for await (const part of result.fullStream) {
    if (part.type === 'text-delta') heard.text += part.text;
    else if (part.type === 'reasoning-delta') heard.reasoning += part.text;
    else if (part.type === 'tool-call') heard.calls.push(called(part));
    else if (part.type === 'error') throw Object.assign(part.error, { heard: heard.text });
    else if (part.type === 'finish') {
      heard.finish = part.finishReason;
      heard.usage = part.totalUsage;
    }
  }
  return heard;
}

function called({ toolCallId, toolName, input }) {
  return { id: toolCallId, name: toolName, arguments: JSON.stringify(input) };
}

function told(error) {
  const { status = null, statusCode = null, type = null, message = null, error: body = null, data = null } = error;
  const kind = error?.constructor?.name ?? null;
  return { error: { kind, status: status ?? statusCode, type, message, body, data, text: String(error) } };
}

// After an error inside a stream the gate closes the connection. Who asks again at once may meet the closing, so we close
// it ourselves.
let socket = null;
subscribe('undici:client:sendHeaders', (message) => {
  socket = message.socket;
});

async function leave(connection) {
  if (!connection || connection.closed) return;
  const closed = once(connection, 'close');
  connection.destroy();
  await closed;
}

async function answered(job) {
  try {
    return await ways[job.client][job.way](job);
  } catch (error) {
    return told(error);
  }
}

const jobs = JSON.parse(readFileSync(0, 'utf8'));
if (Number(atOnce) > 1) {
  const seen = [];
  let next = 0;
  await Promise.all(Array.from({ length: Number(atOnce) }, async () => {
    while (next < jobs.length) {
      const place = next++;
      const began = performance.now();
      seen[place] = { ...await answered(jobs[place]), took_s: (performance.now() - began) / 1000 };
    }
  }));
  for (const one of seen) process.stdout.write(`${JSON.stringify(one)}\n`);
} else {
  for (const job of jobs) {
    const seen = await answered(job);
    if (seen.error?.status === null) await leave(socket);
    process.stdout.write(`${JSON.stringify(seen)}\n`);
  }
}
