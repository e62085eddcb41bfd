"""Pydantic AI, over chats, responses or messages."""

import asyncio

from hands import ADDRESS, API_KEY, BASE_URL, HANDS, INTERFACE, MODEL, PROMPT
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


async def main() -> None:
    """Do what the prompt says."""
    if INTERFACE == "messages":
        model = AnthropicModel(MODEL, provider=AnthropicProvider(base_url=ADDRESS, api_key=API_KEY))
    else:
        kind = OpenAIResponsesModel if INTERFACE == "responses" else OpenAIChatModel
        model = kind(MODEL, provider=OpenAIProvider(base_url=BASE_URL, api_key=API_KEY))
    agent = Agent(model, instructions="Do it.", tools=HANDS)
    print((await agent.run(PROMPT)).output)


asyncio.run(main())
