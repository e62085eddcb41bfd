"""OpenAI's Agents SDK, over chats or responses."""

import asyncio
from contextlib import AsyncExitStack

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from agents.mcp import MCPServerStreamableHttp, create_static_tool_filter
from hands import API_KEY, BASE_URL, HANDS, INTERFACE, MODEL, PROMPT, SHOP
from openai import AsyncOpenAI

QUIET = RunConfig(tracing_disabled=True)


async def main() -> None:
    """Do what the prompt says."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY))
        kind = OpenAIResponsesModel if INTERFACE == "responses" else OpenAIChatCompletionsModel
        model = kind(MODEL, client)
        servers = []
        if SHOP:
            # The server has a tool whose name no API of OpenAI's takes, and the SDK passes names on as they are.
            only = create_static_tool_filter(allowed_tool_names=["stock"])
            shop = MCPServerStreamableHttp(params={"url": SHOP}, tool_filter=only)
            servers.append(await stack.enter_async_context(shop))
        tools = [function_tool(hand) for hand in HANDS]
        other = Agent(name="Other", instructions="Do it.", model=model, tools=tools)
        hire = other.as_tool("hire", "Ask somebody else.", run_config=QUIET)
        agent = Agent(name="Agent", instructions="Do it.", model=model, tools=[*tools, hire], mcp_servers=servers)
        result = Runner.run_streamed(agent, PROMPT, run_config=QUIET)
        async for _ in result.stream_events():
            pass
        print(result.final_output)


asyncio.run(main())
