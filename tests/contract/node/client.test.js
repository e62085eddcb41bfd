// The unmodified client for Node against a running service; the address and keys come from the environment.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const { BASE_URL, API_KEY, LIMITED_KEY, MODEL, EMBEDDING_MODEL } = process.env;
const messages = (content) => [{ role: "user", content }];
const client = (apiKey = API_KEY) => new OpenAI({ apiKey, baseURL: BASE_URL, maxRetries: 0 });

test("a chat completion is answered", async () => {
  const { data, response } = await client()
    .chat.completions.create({ model: MODEL, messages: messages("hello") })
    .withResponse();
  assert.equal(data.choices[0].message.content, "Hello there!");
  assert.equal(data.choices[0].finish_reason, "stop");
  assert.equal(data.usage.total_tokens, 12);
  assert.equal(data._request_id, response.headers.get("x-request-id"));
  assert.match(data._request_id, /^req_[0-9a-f]{32}$/);
});

test("a stream arrives chunk by chunk and ends", async () => {
  const stream = await client().chat.completions.create({
    model: MODEL,
    messages: messages("hello"),
    stream: true,
    stream_options: { include_usage: true },
  });
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  assert.equal(chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.delta.content ?? "")).join(""), "Hello there!");
  assert.equal(chunks.at(-1).usage.completion_tokens, 3);
});

test("the stream helper assembles the message", async () => {
  const stream = client().chat.completions.stream({ model: MODEL, messages: messages("hello") });
  const completion = await stream.finalChatCompletion();
  assert.equal(completion.choices[0].message.content, "Hello there!");
});

test("a tool call is assembled from its pieces", async () => {
  const stream = client().chat.completions.stream({
    model: MODEL,
    messages: messages("call"),
    tools: [{ type: "function", function: { name: "weather", parameters: { type: "object" } } }],
  });
  const { choices } = await stream.finalChatCompletion();
  assert.equal(choices[0].finish_reason, "tool_calls");
  assert.deepEqual(choices[0].message.tool_calls[0].function, { name: "weather", arguments: '{"city":"Kiel"}' });
});

test("a failure midway ends the stream with an error", async () => {
  const stream = await client().chat.completions.create({ model: MODEL, messages: messages("break"), stream: true });
  await assert.rejects(async () => {
    for await (const chunk of stream) assert.ok(chunk);
  }, OpenAI.APIError);
});

test("leaving a stream early is possible", async () => {
  const stream = await client().chat.completions.create({ model: MODEL, messages: messages("hang"), stream: true });
  for await (const chunk of stream) {
    assert.ok(chunk);
    break;
  }
});

test("embeddings decode by default", async () => {
  const { data } = await client().embeddings.create({ model: EMBEDDING_MODEL, input: ["a", "b"] });
  assert.deepEqual(data.map((item) => item.embedding), [[0.25, -0.5, 1], [0.25, -0.5, 1]]);
});

test("models are listed and retrieved", async () => {
  const ids = [];
  for await (const model of client().models.list()) ids.push(model.id);
  assert.deepEqual(ids, [MODEL, EMBEDDING_MODEL]);
  assert.equal((await client().models.retrieve(MODEL)).id, MODEL);
});

const failing = [
  ["an unknown key", OpenAI.AuthenticationError, "invalid_api_key", client("sk-manta-unknown-unknown"), { model: MODEL }],
  ["an unknown model", OpenAI.NotFoundError, "model_not_found", client(), { model: "none" }],
  ["a parameter out of range", OpenAI.BadRequestError, "decimal_above_max_value", client(), { model: MODEL, temperature: 3 }],
  ["an unknown parameter", OpenAI.BadRequestError, "unknown_parameter", client(), { model: MODEL, urgency: 1 }],
  ["a full minute", OpenAI.RateLimitError, "rate_limit_exceeded", client(LIMITED_KEY), { model: MODEL, max_tokens: 4000 }],
];
for (const [what, kind, code, asked, body] of failing) {
  test(`${what} is refused with its class and code`, async () => {
    await assert.rejects(asked.chat.completions.create({ messages: messages("x"), ...body }), (error) => {
      assert.ok(error instanceof kind);
      assert.equal(error.code, code);
      assert.match(error.requestID, /^req_/);
      return true;
    });
  });
}

test("an overload is retried until it has passed", async () => {
  const patient = new OpenAI({ apiKey: API_KEY, baseURL: BASE_URL, maxRetries: 2 });
  const completion = await patient.chat.completions.create({ model: MODEL, messages: messages("busy") });
  assert.equal(completion.choices[0].message.content, "Hello there!");
});
