"use strict";

/* A request as a program in each language, as one would write it. The address and the key are in the environment, where
   OpenAI's libraries look for them. */
const WIDTH = 72;
const SHOWN_IMAGE_CHARS = 48;

function programsOf(kind, request) {
  const asked = JSON.parse(JSON.stringify(request, (key, value) => (
    typeof value === "string" && value.startsWith("data:image/") ? `${value.slice(0, SHOWN_IMAGE_CHARS)}...` : value
  )));
  const method = kind === "chat" ? "chat.completions.create" : "responses.create";
  const sent = JSON.stringify(asked, null, 2).replaceAll("'", "'\\''");
  const curl = [
    `curl -N "$OPENAI_BASE_URL/${PATHS[kind]}" \\`, '  -H "Authorization: Bearer $OPENAI_API_KEY" \\',
    '  -H "Content-Type: application/json" \\', `  -d '${sent}'`,
  ];
  const python = [
    "from openai import OpenAI", "", "client = OpenAI()", `stream = client.${method}(`,
    ...Object.entries(asked).map(([name, value]) => `    ${name}=${literal(value, PYTHON, 4)},`), ")",
    ...(kind === "chat"
      ? ["for chunk in stream:", "    if chunk.choices:", '        print(chunk.choices[0].delta.content or "", end="", flush=True)']
      : ["for event in stream:", '    if event.type == "response.output_text.delta":', '        print(event.delta, end="", flush=True)']),
  ];
  const node = [
    'import OpenAI from "openai";', "", "const client = new OpenAI();", `const stream = await client.${method}({`,
    ...Object.entries(asked).map(([name, value]) => `  ${name}: ${literal(value, NODE, 2)},`), "});",
    ...(kind === "chat"
      ? ["for await (const chunk of stream) {", '  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");', "}"]
      : ["for await (const event of stream) {", '  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);', "}"]),
  ];
  return [curl, python, node].map((lines) => lines.join("\n"));
}

const PYTHON = { words: { true: "True", false: "False", null: "None" }, step: 4, key: (name) => JSON.stringify(name), pad: "" };
const NODE = {
  words: { true: "true", false: "false", null: "null" }, step: 2, pad: " ",
  key: (name) => /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name),
};

/* Return a value in a language: in one line if it is short, else a line for each part. */
function literal(value, language, indent) {
  if (value === null || typeof value === "boolean") return language.words[value];
  if (typeof value !== "object") return JSON.stringify(value);
  const isList = Array.isArray(value);
  const write = (depth) => isList
    ? value.map((one) => literal(one, language, depth))
    : Object.entries(value).map(([name, one]) => `${language.key(name)}: ${literal(one, language, depth)}`);
  const [open, close] = isList ? "[]" : "{}";
  const pad = isList || !Object.keys(value).length ? "" : language.pad;
  const line = open + pad + write(indent).join(", ") + pad + close;
  if (line.length + indent < WIDTH && !line.includes("\n")) return line;
  const inner = " ".repeat(indent + language.step);
  return `${open}\n${write(indent + language.step).map((one) => `${inner}${one},\n`).join("")}${" ".repeat(indent)}${close}`;
}
