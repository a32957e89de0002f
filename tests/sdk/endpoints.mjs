// The official Node SDKs, unmodified, calling every endpoint that gives no text; prints what they saw as JSON.
// node endpoints.mjs BASE_URL KEY

import OpenAI, { toFile } from 'openai';
import { GoogleGenAI } from '@google/genai';

const [base, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0, timeout: 20_000 });
const google = new GoogleGenAI({ apiKey, httpOptions: { baseUrl: base } });
const sound = await toFile(Buffer.alloc(1_000, 7), 'sound.mp3');
const picture = await toFile(Buffer.alloc(100, 9), 'picture.png', { type: 'image/png' });
const seen = {};

const embedded = await client.embeddings.create({ model: 'embed', input: ['one', 'two'] });
seen.embeddings = embedded.data.map((entry) => entry.embedding);
const numbers = await client.embeddings.create({ model: 'embed', input: 'one', encoding_format: 'float' });
seen.numbers = numbers.data[0].embedding;
const theirs = await google.models.embedContent({ model: 'embed', contents: ['one', 'two'] });
seen.google = theirs.embeddings.map((entry) => entry.values);

seen.moderation = (await client.moderations.create({ model: 'embed', input: 'hello' })).results[0].flagged;

const made = await client.images.generate({ model: 'embed', prompt: 'a fox', n: 2 });
seen.images = made.data.map((entry) => Buffer.from(entry.b64_json, 'base64').toString());
const previews = await client.images.generate({ model: 'embed', prompt: 'a fox', stream: true, partial_images: 1 });
seen.previews = [];
for await (const event of previews) seen.previews.push(event.type);
const edited = await client.images.edit({ model: 'embed', prompt: 'snow', image: picture });
seen.edited = Buffer.from(edited.data[0].b64_json, 'base64').toString();

const speech = await client.audio.speech.create({ model: 'embed', voice: 'alloy', input: 'Hello.' });
seen.speech = { type: speech.headers.get('content-type'), sound: Buffer.from(await speech.arrayBuffer()).toString() };
seen.heard = (await client.audio.transcriptions.create({ model: 'embed', file: sound })).text;
const words = await client.audio.transcriptions.create({ model: 'embed', file: sound, stream: true });
seen.words = [];
for await (const event of words) seen.words.push(event.type);

try {
  await client.embeddings.create({ model: 'embed', input: [] });
} catch (error) {
  seen.refused = { name: error.constructor.name, status: error.status, param: error.param };
}
console.log(JSON.stringify(seen));
