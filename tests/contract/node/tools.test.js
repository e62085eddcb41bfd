// The service's own tools through the unmodified clients for Node: `openai`, and the AI SDK with its provider for it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const { BASE_URL, API_KEY, MODEL, STORE, MCP_URL, PAGE } = process.env;
const client = new OpenAI({ apiKey: API_KEY, baseURL: BASE_URL, maxRetries: 0 });
const provider = createOpenAI({ apiKey: API_KEY, baseURL: BASE_URL });
const model = provider.responses(MODEL);

// Of each tool: how a request names it, as each client does, and what is to come of it.
const cases = {
  code_interpreter: {
    plain: { type: "code_interpreter", container: { type: "auto" } },
    include: ["code_interpreter_call.outputs"],
    tools: { code_interpreter: provider.tools.codeInterpreter({}) },
    check: (result) => assert.deepEqual(result.outputs, [{ type: "logs", logs: "42\n" }]),
    item: (item) => assert.deepEqual([item.code, item.outputs[0].logs], ["print(6 * 7); open('a.txt', 'w').close()", "42\n"]),
    text: "See [a](sandbox:/mnt/data/a.txt).",
    annotation: "container_file_citation",
  },
  file_search: {
    plain: { type: "file_search", vector_store_ids: [STORE] },
    include: ["file_search_call.results"],
    tools: { file_search: provider.tools.fileSearch({ vectorStoreIds: [STORE], maxNumResults: 3 }) },
    check: (result) => assert.deepEqual(result.queries, ["moon"]),
    item: (item) => assert.equal(item.results[0].filename, "moon.md"),
    text: "Cheese 【1.1】.",
    annotation: "file_citation",
  },
  web_search: {
    plain: { type: "web_search" },
    include: ["web_search_call.action.sources"],
    tools: { web_search: provider.tools.webSearch({ searchContextSize: "low" }) },
    check: (result) => assert.equal(result.sources[0].url, PAGE),
    item: (item) => assert.equal(item.action.sources[0].url, PAGE),
    text: `Sunny: [Weather](${PAGE}).`,
    annotation: "url_citation",
  },
  mcp: {
    plain: { type: "mcp", server_label: "store", server_url: MCP_URL, require_approval: "never" },
    include: [],
    tools: { mcp: provider.tools.mcp({ serverLabel: "store", serverUrl: MCP_URL, requireApproval: "never" }) },
    check: (result) => assert.equal(result.output, "There are 7 nails."),
    item: (item) => assert.equal(item.output, "There are 7 nails."),
    text: "Seven.",
  },
};

for (const [name, { plain, include, tools, check, item, text, annotation }] of Object.entries(cases)) {
  test(`openai: ${name} is called in a stream`, async () => {
    const stream = client.responses.stream({ model: MODEL, input: name, tools: [plain], include });
    const kinds = [];
    for await (const event of stream) kinds.push(event.type);
    assert.ok(kinds.includes(`response.${name}_call.in_progress`), String(kinds));
    assert.ok(kinds.includes(`response.${name}_call.completed`), String(kinds));
    const { output, output_text } = await stream.finalResponse();
    assert.equal(output_text, text);
    item(output.find((one) => one.type === `${name}_call`));
    assert.equal(output.at(-1).content[0].annotations[0]?.type, annotation);
  });

  test(`ai: ${name} is executed by the provider, and the conversation goes on`, async () => {
    const first = await generateText({ model, prompt: name, tools, maxRetries: 0 });
    assert.equal(first.text, text);
    assert.deepEqual(first.warnings ?? [], []);
    const call = first.content.find((part) => part.type === "tool-call");
    const result = first.content.find((part) => part.type === "tool-result");
    assert.equal(call.providerExecuted, true);
    check(result.output);
    const messages = [{ role: "user", content: name }, ...first.response.messages, { role: "user", content: "again" }];
    const second = await generateText({ model, messages, tools, maxRetries: 0 });
    assert.equal(second.text, "The tool was called before.");
  });

  test(`ai: ${name} is streamed, and nothing in the stream is unknown to its schemas`, async () => {
    const failures = [];
    const stream = streamText({
      model,
      prompt: name,
      tools,
      maxRetries: 0,
      onError: ({ error }) => failures.push(error),
    });
    const parts = [];
    for await (const part of stream.fullStream) parts.push(part);
    assert.deepEqual(failures, []);
    assert.deepEqual(parts.filter((part) => part.type.endsWith("error")), []);
    assert.equal(await stream.text, text);
    const call = parts.find((part) => part.type === "tool-call");
    assert.equal(call.providerExecuted, true);
    check(parts.find((part) => part.type === "tool-result").output);
    if (name === "code_interpreter") {
      const input = parts.filter((part) => part.type === "tool-input-delta").map((part) => part.delta);
      assert.ok(input.length > 3, "the code came in one piece");
      assert.equal(JSON.parse(input.join("")).code, call.input.code);
    }
    const sources = parts.filter((part) => part.type === "source").length;
    assert.equal(sources > 0, annotation !== undefined);
  });
}
