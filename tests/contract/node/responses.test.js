// The unmodified clients for Node over the responses interface: `openai`, and the AI SDK's two providers for it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";

const { BASE_URL, API_KEY, MODEL } = process.env;
const client = new OpenAI({ apiKey: API_KEY, baseURL: BASE_URL, maxRetries: 0 });
const providers = {
  openai: createOpenAI({ apiKey: API_KEY, baseURL: BASE_URL }).responses(MODEL),
  "open-responses": createOpenResponses({ name: "manta", apiKey: API_KEY, url: BASE_URL + "/responses" })(MODEL),
};
const weather = tool({
  description: "Tell the weather of a city.",
  inputSchema: jsonSchema({
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  }),
  execute: async ({ city }) => `It rains in ${city}.`,
});

test("a response is created, continued, retrieved and deleted", async () => {
  const first = await client.responses.create({ model: MODEL, input: "hello" });
  assert.equal(first.output_text, "Hello there!");
  const second = await client.responses.create({ model: MODEL, input: "hello", previous_response_id: first.id });
  assert.equal(second.previous_response_id, first.id);
  assert.equal((await client.responses.retrieve(second.id)).output_text, "Hello there!");
  await client.responses.delete(second.id);
  await assert.rejects(client.responses.retrieve(second.id), OpenAI.NotFoundError);
});

test("a stream arrives event by event and its helper gathers it", async () => {
  const stream = client.responses.stream({ model: MODEL, input: "hello" });
  const kinds = [];
  for await (const event of stream) kinds.push(event.type);
  assert.equal(kinds[0], "response.created");
  assert.equal(kinds.at(-1), "response.completed");
  assert.equal((await stream.finalResponse()).output_text, "Hello there!");
});

for (const [name, model] of Object.entries(providers)) {
  test(`${name}: text is generated`, async () => {
    const { text, finishReason, usage } = await generateText({ model, prompt: "hello", maxRetries: 0 });
    assert.equal(text, "Hello there!");
    assert.equal(finishReason, "stop");
    assert.equal(usage.outputTokens, 3);
  });

  test(`${name}: text is streamed, and nothing in the stream is unknown to its schemas`, async () => {
    const failures = [];
    const stream = streamText({
      model,
      prompt: "think",
      maxRetries: 0,
      includeRawChunks: true,
      onError: ({ error }) => failures.push(error),
    });
    let text = "";
    let reasoning = "";
    for await (const part of stream.fullStream) {
      if (part.type === "text-delta") text += part.text;
      if (part.type === "reasoning-delta") reasoning += part.text;
    }
    assert.deepEqual(failures, []);
    assert.equal(text, "Hello there!");
    if (name === "open-responses") assert.equal(reasoning, "Hmm.");
    assert.equal((await stream.usage).outputTokens, 3);
  });

  test(`${name}: a tool is called and its answer goes back`, async () => {
    const { text, steps } = await generateText({
      model,
      prompt: "call",
      tools: { weather },
      stopWhen: stepCountIs(3),
      maxRetries: 0,
    });
    assert.equal(text, "It rains in Kiel.");
    assert.equal(steps.length, 2);
    assert.deepEqual(steps[0].toolCalls[0].input, { city: "Kiel" });
  });

  test(`${name}: a tool is called in a stream`, async () => {
    const stream = streamText({ model, prompt: "call", tools: { weather }, stopWhen: stepCountIs(3), maxRetries: 0 });
    assert.equal(await stream.text, "It rains in Kiel.");
  });

  test(`${name}: a failure midway is told`, async () => {
    const failures = [];
    const stream = streamText({
      model,
      prompt: "break",
      maxRetries: 0,
      onError: ({ error }) => failures.push(error),
    });
    const reasons = [];
    for await (const part of stream.fullStream) if (part.type === "finish") reasons.push(part.finishReason);
    assert.ok(failures.length > 0 || reasons.includes("error") || reasons.includes("other"), String(reasons));
  });

  test(`${name}: an error has its status`, async () => {
    await assert.rejects(
      generateText({ model, prompt: "hello", temperature: 5, maxRetries: 0 }),
      (error) => error.statusCode === 400,
    );
  });
}

test("openai: an object after a schema is generated", async () => {
  const schema = jsonSchema({
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  });
  const { output } = await generateText({
    model: providers.openai,
    prompt: "object",
    output: Output.object({ schema }),
    maxRetries: 0,
  });
  assert.deepEqual(output, { city: "Kiel" });
});
