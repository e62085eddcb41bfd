"""LlamaIndex's quick starts: `OpenAILike` and `OpenAILikeEmbedding`."""

import pytest
from asks import API_KEY, BASE_URL, EMBEDDING_MODEL, HELLO, MODEL, VECTOR, Place, weather
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike


@pytest.fixture
def model() -> OpenAILike:
    return OpenAILike(
        model=MODEL,
        api_base=BASE_URL,
        api_key=API_KEY,
        is_chat_model=True,
        is_function_calling_model=True,
        should_use_structured_outputs=True,
        context_window=4096,
        max_retries=0,
    )


def test_a_text_is_completed_over_chat(model: OpenAILike) -> None:
    assert model.complete("hello").text == HELLO


def test_a_text_is_completed_over_completions() -> None:
    model = OpenAILike(model=MODEL, api_base=BASE_URL, api_key=API_KEY, is_chat_model=False, context_window=4096)
    assert model.complete("hello").text == HELLO


def test_a_chat_is_answered_whole_and_streamed(model: OpenAILike) -> None:
    messages = [ChatMessage(role="system", content="Be kind."), ChatMessage(role="user", content="hello")]
    assert model.chat(messages).message.content == HELLO
    assert [*model.stream_chat(messages)][-1].message.content == HELLO


async def test_a_chat_is_answered_without_blocking(model: OpenAILike) -> None:
    assert (await model.achat([ChatMessage(role="user", content="hello")])).message.content == HELLO


def test_a_tool_is_called(model: OpenAILike) -> None:
    answer = model.chat_with_tools([FunctionTool.from_defaults(weather)], "call")
    (call,) = model.get_tool_calls_from_response(answer)
    assert (call.tool_name, call.tool_kwargs) == ("weather", {"city": "Kiel"})


def test_an_object_is_filled_in(model: OpenAILike) -> None:
    assert model.as_structured_llm(Place).chat([ChatMessage(role="user", content="object")]).raw == Place(city="Kiel")


def test_texts_are_embedded() -> None:
    embedding = OpenAILikeEmbedding(model_name=EMBEDDING_MODEL, api_base=BASE_URL, api_key=API_KEY, max_retries=0)
    assert embedding.get_text_embedding_batch(["one", "two"]) == [VECTOR, VECTOR]
