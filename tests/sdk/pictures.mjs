// The official `openai` Node SDK, unmodified, on a Gemini model that makes pictures; prints what it saw as JSON.
// node pictures.mjs BASE_URL KEY

import OpenAI, { toFile } from 'openai';

const [base, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0, timeout: 20_000 });
const png = Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), Buffer.alloc(200_000, 9)]);
const picture = () => toFile(png, 'picture.png', { type: 'image/png' });
const text = (entry) => Buffer.from(entry.b64_json, 'base64').subarray(8).toString();
const seen = {};

const made = await client.images.generate({ model: 'banana', prompt: 'a fox', n: 2, size: '1024x1536' });
seen.made = made.data.map(text);
seen.kind = made.output_format;
seen.tokens = made.usage.output_tokens;
const stream = await client.images.generate({ model: 'banana', prompt: 'a fox', stream: true, partial_images: 2 });
seen.streamed = [];
for await (const event of stream) seen.streamed.push([event.type, text(event), event.usage.output_tokens]);
const edited = await client.images.edit({ model: 'banana', prompt: 'snow', image: [await picture(), await picture()] });
seen.edited = edited.data.map(text);
const edits = await client.images.edit({ model: 'banana', prompt: 'snow', image: await picture(), stream: true });
seen.edits = [];
for await (const event of edits) seen.edits.push([event.type, text(event)]);
const named = { model: 'banana', prompt: 'snow', images: [{ image_url: `data:image/png;base64,${png.toString('base64')}` }] };
seen.named = (await client.post('/images/edits', { body: named })).data.map(text);

seen.refused = [];
for (const wrong of [{ response_format: 'url' }, { n: 5 }, { prompt: 'something forbidden' }]) {
  try {
    await client.images.generate({ model: 'banana', prompt: 'a fox', ...wrong });
  } catch (error) {
    seen.refused.push({ name: error.constructor.name, status: error.status, param: error.param, code: error.code });
  }
}
console.log(JSON.stringify(seen));
