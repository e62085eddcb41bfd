"""LangChain's quick starts: `ChatOpenAI` over chat completions and over responses, and `OpenAIEmbeddings`."""

import pytest
from asks import API_KEY, BASE_URL, EMBEDDING_MODEL, HELLO, MODEL, RAIN, VECTOR, Place, weather
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings


@pytest.fixture(params=[False, True], ids=["chat completions", "responses"])
def model(request: pytest.FixtureRequest) -> ChatOpenAI:
    return ChatOpenAI(
        model=MODEL,
        base_url=BASE_URL,
        api_key=API_KEY,
        max_retries=0,
        use_responses_api=request.param,
        stream_usage=True,
    )


def test_a_message_is_answered(model: ChatOpenAI) -> None:
    answer = model.invoke([("system", "Be kind."), ("human", "hello")])
    assert answer.text == HELLO
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == 3


def test_a_stream_adds_up(model: ChatOpenAI) -> None:
    chunks = [*model.stream("hello")]
    total = sum(chunks[1:], chunks[0])
    assert len([chunk for chunk in chunks if chunk.text]) == 3
    assert isinstance(total, AIMessageChunk)
    assert total.text == HELLO
    assert total.usage_metadata is not None
    assert total.usage_metadata["output_tokens"] == 3


async def test_many_are_answered_at_once(model: ChatOpenAI) -> None:
    answers = await model.abatch(["hello"] * 4)
    assert [answer.text for answer in answers] == [HELLO] * 4


def test_a_tool_is_called_and_its_result_read(model: ChatOpenAI) -> None:
    able = model.bind_tools([weather])
    asked = able.invoke("call")
    assert [(call["name"], call["args"]) for call in asked.tool_calls] == [("weather", {"city": "Kiel"})]
    result = ToolMessage(weather("Kiel"), tool_call_id=asked.tool_calls[0]["id"])
    assert able.invoke([HumanMessage("call"), asked, result]).text == RAIN


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_an_object_is_filled_in(model: ChatOpenAI, method: str) -> None:
    assert model.with_structured_output(Place, method=method).invoke("object") == Place(city="Kiel")


def test_texts_are_embedded() -> None:
    embeddings = OpenAIEmbeddings(
        model=EMBEDDING_MODEL, base_url=BASE_URL, api_key=API_KEY, check_embedding_ctx_length=False, max_retries=0
    )
    assert embeddings.embed_documents(["one", "two"]) == [VECTOR, VECTOR]
    assert embeddings.embed_query("one") == VECTOR
