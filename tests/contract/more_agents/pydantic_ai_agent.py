"""Pydantic AI, over chats or responses."""

import asyncio

from hands import API_KEY, BASE_URL, HANDS, INTERFACE, MODEL, PROMPT
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


async def main() -> None:
    """Do what the prompt says."""
    kind = OpenAIResponsesModel if INTERFACE == "responses" else OpenAIChatModel
    model = kind(MODEL, provider=OpenAIProvider(base_url=BASE_URL, api_key=API_KEY))
    agent = Agent(model, instructions="Do it.", tools=HANDS)
    print((await agent.run(PROMPT)).output)


asyncio.run(main())
