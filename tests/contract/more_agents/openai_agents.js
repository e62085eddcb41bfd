// OpenAI's Agents SDK, over chats or responses.

import { Agent, MCPServerStreamableHttp, OpenAIProvider, Runner, tool } from "@openai/agents";
import { API_KEY, BASE_URL, HANDS, INTERFACE, MODEL, PROMPT, SHOP } from "./hands.js";

const tools = Object.entries(HANDS).map(([name, { description, parameters, run }]) =>
  tool({ name, description, parameters, execute: run }),
);
const modelProvider = new OpenAIProvider({
  apiKey: API_KEY,
  baseURL: BASE_URL,
  useResponses: INTERFACE === "responses",
});
const runner = new Runner({ modelProvider, tracingDisabled: true });
const mcpServers = SHOP ? [new MCPServerStreamableHttp({ url: SHOP, name: "shop" })] : [];
await Promise.all(mcpServers.map((server) => server.connect()));
const other = new Agent({ name: "Other", instructions: "Do it.", model: MODEL, tools });
const hire = other.asTool({ toolName: "hire", toolDescription: "Ask somebody else.", runConfig: { modelProvider } });
const agent = new Agent({ name: "Agent", instructions: "Do it.", model: MODEL, tools: [...tools, hire], mcpServers });
const stream = await runner.run(agent, PROMPT, { stream: true });
await stream.completed;
console.log(stream.finalOutput);
await Promise.all(mcpServers.map((server) => server.close()));
