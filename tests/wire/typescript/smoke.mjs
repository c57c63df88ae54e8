// Sends, streams, leaves and resumes with the official client; prints what it was told as one JSON object.
import { Letta } from "@letta-ai/letta-client";

const client = new Letta({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0, timeout: 60_000 });

async function all(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}

async function firstOf(stream, count) {
  const items = [];
  for await (const item of stream) {
    items.push(item);
    if (items.length === count) break; // The client hangs up here.
  }
  return items;
}

const agent = await client.agents.create({ model: "holdfast/guide", include_base_tools: false });
const messages = client.agents.messages;
const told = {};

told.sent = await messages.create(agent.id, { input: "Hello" });
told.steps = await all(await messages.stream(agent.id, { input: "Hello again" }));
told.tokens = await all(await messages.create(agent.id, { input: "Count to 3", streaming: true, stream_tokens: true }));

const wish = { input: "Count to 4", streaming: true, stream_tokens: true, background: true };
told.begun = await firstOf(await messages.create(agent.id, wish), 2);
const { run_id, seq_id } = told.begun.at(-1);
told.resumed = await all(await client.runs.messages.stream(run_id, { starting_after: seq_id }));
told.replayed = await all(await client.runs.messages.stream(run_id, { starting_after: 0 }));
told.run = await client.runs.retrieve(run_id);

const run = await messages.createAsync(agent.id, { input: "Count to 1000" });
told.cancelled = await messages.cancel(agent.id, { run_ids: [run.id] });
told.stopped = await all(await client.runs.messages.stream(run.id));

told.refused = await client.runs.messages.stream(run_id, { starting_after: -1 }).catch((error) => error.status);
await client.agents.delete(agent.id);
console.log(JSON.stringify(told));
