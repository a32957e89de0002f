// The official `openai` Node SDK, unmodified, doing one thing with a gate and printing what it saw as JSON.
// node openai.mjs BASE_URL KEY THING [MODEL]

import OpenAI from 'openai';

const [baseURL, apiKey, thing, model = 'plain'] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 10_000 });
const messages = [{ role: 'user', content: 'Where does water go?' }];
const tools = [
  {
    type: 'function',
    function: { name: 'get_level', parameters: { type: 'object', properties: { river: { type: 'string' } } } },
  },
];

const things = {
  async streamed() {
    const stream = await client.chat.completions.create({
      model, messages, stream: true, stream_options: { include_usage: true },
    });
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    return { chunks };
  },

  async helper() {
    const stream = client.chat.completions.stream({ model, messages, stream_options: { include_usage: true } });
    const deltas = [];
    stream.on('content', (delta) => deltas.push(delta));
    const final = await stream.finalChatCompletion();
    return { deltas, final };
  },

  async whole() {
    const { data, response } = await client.chat.completions.create({ model, messages }).withResponse();
    return { answer: data, cost: response.headers.get('x-sluicegate-cost-nano-usd') };
  },

  async tools() {
    const final = await client.chat.completions.stream({ model, messages, tools }).finalChatCompletion();
    return { final };
  },

  async leave() {
    const stream = await client.chat.completions.create({ model, messages, stream: true });
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break;
    return { left: true };
  },
};

try {
  console.log(JSON.stringify(await things[thing]()));
} catch (error) {
  const { status = null, message, code = null, type = null } = error;
  console.log(JSON.stringify({ error: { name: error.constructor.name, status, message, code, type } }));
}
