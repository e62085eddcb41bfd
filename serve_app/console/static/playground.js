"use strict";

/* The playground: answers are streamed over fetch, and every text is set as text, never as HTML. */
const play = document.getElementById("play");
if (play) {
  const at = (id) => document.getElementById(id);
  const talk = at("talk");
  let said = [];
  let running = null;

  const tools = () => {
    const text = at("tools").value.trim();
    if (!text) return [];
    const value = JSON.parse(text);
    if (!Array.isArray(value)) throw new Error("not a list");
    return value;
  };
  const checkTools = () => {
    try { tools(); at("tools").setCustomValidity(""); } catch { at("tools").setCustomValidity("This is not a JSON list."); }
  };
  const body = (messages) => {
    const isChat = at("kind").value === "chat";
    const asked = { model: at("model").value };
    const system = at("system").value.trim();
    if (isChat) {
      asked.messages = system ? [{ role: "system", content: system }, ...messages] : messages;
      if (at("max").value) asked.max_completion_tokens = Number(at("max").value);
    } else {
      asked.input = messages;
      if (system) asked.instructions = system;
      if (at("max").value) asked.max_output_tokens = Number(at("max").value);
    }
    if (at("temperature").value) asked.temperature = Number(at("temperature").value);
    try { if (tools().length) asked.tools = tools(); } catch { /* The field says it. */ }
    asked.stream = true;
    return asked;
  };

  const shown = () => body([...said, { role: "user", content: at("prompt").value || "Hello" }]);
  const samples = {
    curl: (asked, path, base) => `curl -N ${base}/${path} \\\n  -H "Authorization: Bearer $MANTA_API_KEY" \\\n  -H "Content-Type: application/json" \\\n  -d '${JSON.stringify(asked, null, 2).replaceAll("'", "'\\''")}'`,
    python: (asked, path, base) => {
      const call = path === "responses" ? "client.responses.create" : "client.chat.completions.create";
      const show = path === "responses"
        ? '    if event.type == "response.output_text.delta":\n        print(event.delta, end="", flush=True)'
        : '    if event.choices:\n        print(event.choices[0].delta.content or "", end="", flush=True)';
      return `import json\nimport os\n\nfrom openai import OpenAI\n\nclient = OpenAI(base_url="${base}", api_key=os.environ["MANTA_API_KEY"])\nask = json.loads(r"""\n${JSON.stringify(asked, null, 2).replaceAll('"""', '\\"\\"\\"')}\n""")\nfor event in ${call}(**ask):\n${show}`;
    },
    node: (asked, path, base) => {
      const call = path === "responses" ? "client.responses.create" : "client.chat.completions.create";
      const show = path === "responses"
        ? '  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);'
        : '  process.stdout.write(event.choices[0]?.delta?.content ?? "");';
      return `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: "${base}", apiKey: process.env.MANTA_API_KEY });\nconst stream = await ${call}(${JSON.stringify(asked, null, 2)});\nfor await (const event of stream) {\n${show}\n}`;
    },
  };
  const showCode = () => {
    const path = at("kind").value === "chat" ? "chat/completions" : "responses";
    Object.values(samples).forEach((write, i) => { at(`code-${i + 1}`).textContent = write(shown(), path, play.dataset.base); });
  };

  const add = (who, text) => {
    const turn = document.createElement("div");
    turn.className = `turn ${who}`;
    const says = document.createElement("div");
    says.className = "who-says";
    says.textContent = who;
    const words = document.createElement("div");
    words.className = "text";
    words.textContent = text;
    turn.append(says, words);
    talk.append(turn);
    return words;
  };

  const calls = new Map();
  const read = (event, words) => {
    /* Return the text that an event adds; calls of functions are shown as text. */
    if (event.error) throw new Error(event.error.message);
    if (event.type === "error") throw new Error(event.message);
    if (event.type === "response.failed") throw new Error(event.response.error?.message || "The response failed.");
    if (event.type === "response.output_text.delta") return event.delta;
    if (event.type === "response.output_item.done" && event.item.type === "function_call") {
      add("call", `${event.item.name}(${event.item.arguments})`);
    }
    const delta = event.choices?.[0]?.delta;
    for (const call of delta?.tool_calls || []) {
      const known = calls.get(call.index) || { name: "", args: "", words: add("call", "") };
      known.name += call.function?.name || "";
      known.args += call.function?.arguments || "";
      known.words.textContent = `${known.name}(${known.args})`;
      calls.set(call.index, known);
    }
    return delta?.content || "";
  };

  const ask = async (text) => {
    said.push({ role: "user", content: text });
    add("user", text);
    const words = add("assistant", "");
    calls.clear();
    running = new AbortController();
    const began = performance.now();
    let first = 0;
    let answer = "";
    try {
      const kind = at("kind").value === "chat" ? "chat" : "responses";
      const reply = await fetch(`/console/playground/${kind}`, {
        method: "POST", signal: running.signal, body: JSON.stringify(body(said)),
        headers: { "content-type": "application/json", "x-csrf-token": JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRF-Token"] },
      });
      if (reply.status === 401) { location.assign("/console/sign-in"); return; }
      if (!reply.ok) throw new Error((await reply.json()).error.message);
      const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        for (const one of events) {
          const data = one.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
          if (!data || data === "[DONE]") continue;
          const more = read(JSON.parse(data), words);
          if (more && !first) first = performance.now() - began;
          answer += more;
          words.textContent = answer;
        }
      }
      at("state").textContent = first ? `First words after ${Math.round(first)} ms, all after ${Math.round(performance.now() - began)} ms` : "";
    } catch (error) {
      if (error.name !== "AbortError") { const note = add("error", error.message); note.parentElement.setAttribute("role", "alert"); }
      at("state").textContent = error.name === "AbortError" ? "Stopped" : "";
    } finally {
      if (answer) said.push({ role: "assistant", content: answer }); else { said.pop(); words.parentElement.remove(); }
      running = null;
      at("send").disabled = false;
      at("stop").hidden = true;
      showCode();
    }
  };

  play.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = at("prompt").value.trim();
    if (!text || running) return;
    at("prompt").value = "";
    at("send").disabled = true;
    at("stop").hidden = false;
    ask(text);
  });
  at("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); play.requestSubmit(); }
  });
  at("stop").addEventListener("click", () => running?.abort());
  at("clear").addEventListener("click", () => { said = []; talk.replaceChildren(); at("state").textContent = ""; showCode(); });
  at("tools").addEventListener("input", checkTools);
  play.addEventListener("input", showCode);
  showCode();
}
