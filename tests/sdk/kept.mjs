// The Vercel AI SDK as it is by default on Responses: a conversation of several turns, one of them with a tool that it runs itself.
// What was said before it tells by ids of items, then by the id of the answer. Prints a line of JSON a model.
// node kept.mjs GATE KEY HOW MODEL …

import { createOpenAI } from '@ai-sdk/openai';
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';

globalThis.AI_SDK_LOG_WARNINGS = false; // it prints them among the answers

const [gate, apiKey, how, ...models] = process.argv.slice(2);
const sent = [];
const spy = async (url, options) => {
  sent.push(JSON.parse(options.body));
  return fetch(url, options);
};
const openai = createOpenAI({ baseURL: `${gate}/v1`, apiKey, fetch: spy });
const tools = {
  weather: tool({
    description: 'The weather of a city.',
    inputSchema: jsonSchema({ type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }),
    execute: ({ city }) => `dry in ${city}`,
  }),
};

async function turn(model, messages, providerOptions) {
  const asked = {
    model: openai(model), messages, tools, stopWhen: stepCountIs(4), maxRetries: 0, providerOptions,
    onError: ({ error }) => { throw error; },
  };
  const result = how === 'plain' ? await generateText(asked) : streamText(asked);
  if (how !== 'plain') for await (const piece of result.textStream) void piece;
  const [text, steps, response] = [await result.text, await result.steps, await result.response];
  return { text, steps, messages: response.messages, id: steps.at(-1).providerMetadata.openai.responseId };
}

for (const model of models) {
  const messages = [{ role: 'user', content: 'Is it dry in Paris?' }];
  const first = await turn(model, messages);
  messages.push(...first.messages, { role: 'user', content: 'Are you sure?' });
  const second = await turn(model, messages);
  const third = await turn(model, [{ role: 'user', content: 'Thank you.' }], {
    openai: { previousResponseId: second.id },
  });
  const kinds = sent.splice(0).map(({ input, store, previous_response_id: previous }) => ({
    store, previous, items: input.map(({ type, role }) => type ?? role),
  }));
  console.log(JSON.stringify({
    model, texts: [first.text, second.text, third.text], steps: first.steps.map(({ finishReason }) => finishReason),
    ids: [first.id, second.id, third.id], kinds,
  }));
}
