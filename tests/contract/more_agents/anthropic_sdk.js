// Anthropic's client, which runs tools in a loop.

import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { ADDRESS, API_KEY, HANDS, MODEL, PROMPT } from "./hands.js";

const client = new Anthropic({ baseURL: ADDRESS, apiKey: API_KEY });
const tools = Object.entries(HANDS).map(([name, { description, parameters, run }]) =>
  betaZodTool({ name, description, inputSchema: parameters, run }),
);
const messages = [{ role: "user", content: PROMPT }];
const final = await client.beta.messages.toolRunner({ model: MODEL, max_tokens: 4000, messages, tools });
console.log(final.content.find((block) => block.type === "text").text);
