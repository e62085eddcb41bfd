"use strict";

/* The playground's requests, in both interfaces. A conversation is a list of turns:
   {role: "user", text, images: [data URL]} or
   {role: "assistant", text, reasoning, calls: [{id, name, args, result}], finish, usage, ttft, duration}. */
const PATHS = { chat: "chat/completions", responses: "responses" };

function requestOf(kind, model, settings, turns) {
  const asked = { model };
  if (kind === "chat") {
    asked.messages = turns.flatMap(messagesOf);
    if (settings.system) asked.messages.unshift({ role: "system", content: settings.system });
  } else {
    if (settings.system) asked.instructions = settings.system;
    asked.input = turns.flatMap(itemsOf);
  }
  if (settings.temperature !== null) asked.temperature = settings.temperature;
  if (settings.topP !== null) asked.top_p = settings.topP;
  if (settings.maxTokens !== null) asked[kind === "chat" ? "max_completion_tokens" : "max_output_tokens"] = settings.maxTokens;
  if (settings.seed !== null && kind === "chat") asked.seed = settings.seed;
  if (settings.effort) Object.assign(asked, kind === "chat" ? { reasoning_effort: settings.effort } : { reasoning: { effort: settings.effort } });
  if (settings.tools.length) asked.tools = settings.tools.map((tool) => toolOf(kind, tool));
  if (settings.schema) {
    const form = { name: "answer", schema: settings.schema };
    Object.assign(asked, kind === "chat"
      ? { response_format: { type: "json_schema", json_schema: form } }
      : { text: { format: { type: "json_schema", ...form } } });
  }
  asked.stream = true;
  if (kind === "chat") asked.stream_options = { include_usage: true };
  return asked;
}

function messagesOf(turn) {
  if (turn.role === "user") {
    const images = turn.images.map((url) => ({ type: "image_url", image_url: { url } }));
    return [{ role: "user", content: images.length ? [{ type: "text", text: turn.text }, ...images] : turn.text }];
  }
  const message = { role: "assistant", content: turn.text };
  if (turn.calls.length) {
    message.tool_calls = turn.calls.map(({ id, name, args }) => ({ id, type: "function", function: { name, arguments: args } }));
  }
  return [message, ...turn.calls.map(({ id, result }) => ({ role: "tool", tool_call_id: id, content: result }))];
}

function itemsOf(turn) {
  if (turn.role === "user") {
    const images = turn.images.map((url) => ({ type: "input_image", image_url: url }));
    return [{ role: "user", content: images.length ? [{ type: "input_text", text: turn.text }, ...images] : turn.text }];
  }
  return [
    ...(turn.text ? [{ role: "assistant", content: turn.text }] : []),
    ...turn.calls.map(({ id, name, args }) => ({ type: "function_call", call_id: id, name, arguments: args })),
    ...turn.calls.map(({ id, result }) => ({ type: "function_call_output", call_id: id, output: result })),
  ];
}

/* The two interfaces nest a function differently; either form may be pasted. */
function toolOf(kind, tool) {
  if (tool.type !== "function") return tool;
  const { type, function: nested, ...flat } = tool;
  const about = nested || flat;
  return kind === "chat" ? { type, function: about } : { type, ...about };
}

/* Yield the events of a stream of server-sent events. */
async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

/* Add to an assistant's turn what an event says. An event that is an error is thrown. */
function take(turn, event) {
  if (event.error) throw new Error(event.error.message);
  if (event.type) takeResponseEvent(turn, event);
  else takeChunk(turn, event);
}

function takeChunk(turn, { choices, usage }) {
  const { delta = {}, finish_reason: finish } = choices?.[0] ?? {};
  turn.text += delta.content || "";
  turn.reasoning += delta.reasoning_content || delta.reasoning || "";
  for (const { index, id, function: part } of delta.tool_calls || []) {
    const call = turn.calls[index] ??= { id: "", name: "", args: "", result: null };
    call.id ||= id || "";
    call.name += part?.name || "";
    call.args += part?.arguments || "";
  }
  if (finish) turn.finish = finish;
  if (usage) {
    turn.usage = {
      prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details?.cached_tokens || 0,
      completion: usage.completion_tokens, reasoning: usage.completion_tokens_details?.reasoning_tokens || 0,
    };
  }
}

function takeResponseEvent(turn, event) {
  const { type, delta, item, response } = event;
  if (type === "error") throw new Error(event.message);
  if (type === "response.failed") throw new Error(response.error?.message || "The response failed.");
  if (type === "response.output_text.delta") turn.text += delta;
  if (type === "response.reasoning_text.delta") turn.reasoning += delta;
  if (type === "response.output_item.done" && item.type === "function_call") {
    turn.calls.push({ id: item.call_id, name: item.name, args: item.arguments, result: null });
  }
  if (type !== "response.completed" && type !== "response.incomplete") return;
  turn.finish = response.incomplete_details?.reason || response.status;
  const { usage } = response;
  turn.usage = usage && {
    prompt: usage.input_tokens, cached: usage.input_tokens_details?.cached_tokens || 0,
    completion: usage.output_tokens, reasoning: usage.output_tokens_details?.reasoning_tokens || 0,
  };
}
