"""LiteLLM as a client: its names of providers and models before the service's own."""

import litellm
import pytest
from asks import API_KEY, BASE_URL, EMBEDDING_MODEL, HELLO, MODEL, VECTOR

WHERE = {"api_base": BASE_URL, "api_key": API_KEY, "num_retries": 0}
MESSAGES = [{"role": "user", "content": "hello"}]
PROVIDERS = pytest.mark.parametrize("provider", ["openai", "hosted_vllm"])


@PROVIDERS
def test_a_chat_is_answered(provider: str) -> None:
    answer = litellm.completion(f"{provider}/{MODEL}", MESSAGES, temperature=0, **WHERE)
    assert answer.choices[0].message.content == HELLO
    assert answer.usage.completion_tokens == 3


@PROVIDERS
async def test_a_stream_adds_up(provider: str) -> None:
    options = {"include_usage": True}
    stream = await litellm.acompletion(f"{provider}/{MODEL}", MESSAGES, stream=True, stream_options=options, **WHERE)
    chunks = [chunk async for chunk in stream]
    assert litellm.stream_chunk_builder(chunks).choices[0].message.content == HELLO


@PROVIDERS
def test_a_tool_is_called(provider: str) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    answer = litellm.completion(f"{provider}/{MODEL}", [{"role": "user", "content": "call"}], tools=[tool], **WHERE)
    assert answer.choices[0].message.tool_calls[0].function.arguments == '{"city":"Kiel"}'


def test_a_response_is_created() -> None:
    answer = litellm.responses(input="hello", model=f"openai/{MODEL}", **WHERE)
    assert answer.output[0].content[0].text == HELLO


@PROVIDERS
def test_texts_are_embedded(provider: str) -> None:
    answer = litellm.embedding(f"{provider}/{EMBEDDING_MODEL}", ["one", "two"], encoding_format="float", **WHERE)
    assert [item["embedding"] for item in answer.data] == [VECTOR, VECTOR]


def test_a_refusal_is_its_own_error() -> None:
    with pytest.raises(litellm.AuthenticationError, match="API key"):
        litellm.completion(f"openai/{MODEL}", MESSAGES, api_base=BASE_URL, api_key="sk-nobody", num_retries=0)
    with pytest.raises(litellm.NotFoundError, match="nothing"):
        litellm.completion("openai/nothing", MESSAGES, **WHERE)
