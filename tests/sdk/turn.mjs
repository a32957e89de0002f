// The Vercel AI SDK taking turns with a tool that it runs itself, through each vendor's provider; prints a line of JSON a turn.
// node turn.mjs GATE KEY QUESTION VENDOR:MODEL:HOW …

import { readFile } from 'node:fs/promises';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createGoogleGenerativeAI } from '@ai-sdk/google';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';

globalThis.AI_SDK_LOG_WARNINGS = false; // it prints them among the answers

const [gate, apiKey, question, ...turns] = process.argv.slice(2);
const vendors = {
  'openai-compatible': (model) => createOpenAICompatible({
    name: 'gate', baseURL: `${gate}/v1`, apiKey, includeUsage: true,
  })(model),
  'openai': (model) => createOpenAI({ baseURL: `${gate}/v1`, apiKey })(model),
  'anthropic': (model) => createAnthropic({ baseURL: `${gate}/v1`, apiKey })(model),
  'google': (model) => createGoogleGenerativeAI({ baseURL: `${gate}/v1beta`, apiKey })(model),
};
const tools = {
  read_file: tool({
    description: 'Read a file.',
    inputSchema: jsonSchema({
      type: 'object', properties: { file_path: { type: 'string' } }, required: ['file_path'],
    }),
    execute: ({ file_path }) => readFile(file_path, 'utf8'),
  }),
};

for (const turn of turns) {
  const [vendor, model, how] = turn.split(':');
  const asked = {
    model: vendors[vendor](model), prompt: question, tools, stopWhen: stepCountIs(4), maxRetries: 0,
    onError: ({ error }) => { throw error; },
  };
  if (how === 'plain') {
    const { text, steps } = await generateText(asked);
    const usage = steps.map(({ usage }) => [usage.inputTokens, usage.outputTokens]);
    console.log(JSON.stringify({ turn, text, steps: steps.map(({ finishReason }) => finishReason), usage }));
  } else {
    const result = streamText(asked);
    const pieces = [];
    for await (const piece of result.textStream) pieces.push(piece);
    const steps = await result.steps;
    const usage = steps.map(({ usage }) => [usage.inputTokens, usage.outputTokens]);
    console.log(JSON.stringify({
      turn, text: pieces.join(''), pieces: pieces.length, steps: steps.map(({ finishReason }) => finishReason), usage,
    }));
  }
}
