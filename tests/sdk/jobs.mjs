// The official `openai` Node SDK, unmodified, on what goes on at a provider: videos, files, batches; prints what it saw.
// node jobs.mjs BASE_URL KEY

import OpenAI, { toFile } from 'openai';

const [base, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey, maxRetries: 0, timeout: 20_000 });
const seen = {};

const video = await client.videos.create({ model: 'sora-2', prompt: 'A cat', seconds: '4', size: '720x1280' });
seen.video = { id: video.id, status: video.status, model: video.model };
let done = video;
while (done.status !== 'completed') done = await client.videos.retrieve(video.id);
const content = await client.videos.downloadContent(video.id);
seen.bytes = (await content.arrayBuffer()).byteLength;
let edited = await client.videos.edit({ prompt: 'In snow', video: { id: video.id } });
while (edited.status !== 'completed') edited = await client.videos.retrieve(edited.id);
let longer = await client.videos.extend({ prompt: 'It leaves', seconds: '8', video: { id: edited.id } });
while (longer.status !== 'completed') longer = await client.videos.retrieve(longer.id);
seen.edited = [edited.seconds, longer.seconds];
for (const one of [edited, longer]) await client.videos.delete(one.id);
seen.listed = [];
for await (const one of client.videos.list()) seen.listed.push(one.id);
seen.deleted = (await client.videos.delete(video.id)).deleted;
try {
  await client.videos.retrieve('video_nobodys');
} catch (error) {
  seen.unknown = error.status;
}

const line = {
  custom_id: 'a',
  method: 'POST',
  url: '/v1/chat/completions',
  body: { model: 'big', max_tokens: 100, messages: [{ role: 'user', content: 'hello' }] },
};
const file = await client.files.create({ file: await toFile(Buffer.from(JSON.stringify(line)), 'r.jsonl'), purpose: 'batch' });
let batch = await client.batches.create({ input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' });
while (batch.status !== 'completed') batch = await client.batches.retrieve(batch.id);
const results = await (await client.files.content(batch.output_file_id)).text();
seen.results = results.trim().split('\n').map((text) => JSON.parse(text).custom_id);
seen.batches = (await client.batches.list()).data.map((one) => one.id === batch.id);
seen.files = (await client.files.list()).data.length;
seen.dropped = (await client.files.delete(file.id)).deleted;
console.log(JSON.stringify(seen));
