"""Anthropic's client, which runs tools in a loop."""

from anthropic import Anthropic, beta_tool
from hands import ADDRESS, API_KEY, HANDS, MODEL, PROMPT

with Anthropic(base_url=ADDRESS, api_key=API_KEY) as client:
    runner = client.beta.messages.tool_runner(
        model=MODEL,
        max_tokens=4000,
        messages=[{"role": "user", "content": PROMPT}],
        tools=[beta_tool(hand) for hand in HANDS],
    )
    final = runner.until_done()
print(next(block.text for block in final.content if block.type == "text"))
