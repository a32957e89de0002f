// The official Node SDKs' helpers, and the Vercel AI SDK, on searches of the web that another vendor's tool made; prints JSON.
// node searches.mjs GATE KEY MESSAGES_MODEL GEMINI_MODEL

import Anthropic from '@anthropic-ai/sdk';
import { GoogleGenAI } from '@google/genai';
import OpenAI from 'openai';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createGoogleGenerativeAI } from '@ai-sdk/google';
import { createOpenAI } from '@ai-sdk/openai';
import { streamText } from 'ai';

globalThis.AI_SDK_LOG_WARNINGS = false; // it prints them among the answers

const [gate, apiKey, atMessages, atGemini] = process.argv.slice(2);
const told = {};

const openai = new OpenAI({ baseURL: `${gate}/v1`, apiKey, maxRetries: 0 });
const response = await openai.responses.stream({
  model: atMessages, input: 'Hello', tools: [{ type: 'web_search' }], store: false,
}).finalResponse();
told.responses = { text: response.output_text, kinds: response.output.map(({ type }) => type) };

const anthropic = new Anthropic({ baseURL: gate, apiKey, maxRetries: 0 });
const message = await anthropic.messages.stream({
  model: atGemini, max_tokens: 1000, messages: [{ role: 'user', content: 'Hello' }],
  tools: [{ type: 'web_search_20250305', name: 'web_search' }],
}).finalMessage();
told.messages = {
  text: message.content.filter(({ type }) => type === 'text').map(({ text }) => text).join(''),
  kinds: message.content.map(({ type }) => type),
};

const google = new GoogleGenAI({ apiKey, httpOptions: { baseUrl: gate } });
let text = '', queries = [];
for await (const chunk of await google.models.generateContentStream({
  model: atMessages, contents: 'Hello', config: { tools: [{ googleSearch: {} }] },
})) {
  text += chunk.text ?? '';
  queries = chunk.candidates?.[0]?.groundingMetadata?.webSearchQueries ?? queries;
}
told.gemini = { text, queries };

const search = {
  openai: (ai) => [createOpenAI({ baseURL: `${gate}/v1`, apiKey }), atMessages, (vendor) => vendor.tools.webSearch({})],
  anthropic: () => [createAnthropic({ baseURL: `${gate}/v1`, apiKey }), atGemini,
    (vendor) => vendor.tools.webSearch_20250305({})],
  google: () => [createGoogleGenerativeAI({ baseURL: `${gate}/v1beta`, apiKey }), atMessages,
    (vendor) => vendor.tools.googleSearch({})],
};
told.ai = {};
for (const [name, make] of Object.entries(search)) {
  const [vendor, model, tool] = make();
  const tools = { [name === 'google' ? 'google_search' : 'web_search']: tool(vendor) };
  const result = streamText({
    model: vendor(model), prompt: 'Hello', tools, maxRetries: 0, onError: ({ error }) => { throw error; },
  });
  let said = '';
  for await (const piece of result.textStream) said += piece;
  const sources = (await result.sources).map(({ url }) => url);
  told.ai[name] = { text: said, sources: [...new Set(sources)], finish: await result.finishReason };
}
console.log(JSON.stringify(told));
