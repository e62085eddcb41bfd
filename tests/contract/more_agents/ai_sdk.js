// The AI SDK with its providers for OpenAI's and Anthropic's interfaces.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { stepCountIs, streamText, tool } from "ai";
import { API_KEY as apiKey, BASE_URL as baseURL, HANDS, INTERFACE, MODEL, PROMPT } from "./hands.js";

const model = {
  compatible: () => createOpenAICompatible({ name: "manta", baseURL, apiKey })(MODEL),
  chat: () => createOpenAI({ baseURL, apiKey }).chat(MODEL),
  responses: () => createOpenAI({ baseURL, apiKey }).responses(MODEL),
  messages: () => createAnthropic({ baseURL, apiKey })(MODEL),
}[INTERFACE]();
const tools = Object.fromEntries(
  Object.entries(HANDS).map(([name, { description, parameters, run }]) => [
    name,
    tool({ description, inputSchema: parameters, execute: run }),
  ]),
);
const result = streamText({
  model,
  tools,
  prompt: PROMPT,
  stopWhen: stepCountIs(10),
  onError: ({ error }) => {
    throw error;
  },
});
console.log(await result.text);
