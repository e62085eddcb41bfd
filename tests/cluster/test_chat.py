"""Chat completions as OpenAI's client sees them, from the real engine through the front."""

import json
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from tests.service import CHAT, COLOUR, EMBED, TRAINED, Service

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

ASKED: list[Any] = [{"role": "user", "content": "Tell me about the river and the hills behind it."}]
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "paint", "strict": True, "parameters": COLOUR}},
    {"type": "function", "function": {"name": "wait", "parameters": {"type": "object", "properties": {}}}},
]


def streamed_text(chunks: list[Any], choice: int = 0) -> str:
    return "".join(
        part.delta.content or "" for chunk in chunks for part in chunk.choices if part.index == choice and part.delta
    )


def streamed_reasons(chunks: list[Any]) -> dict[int, str]:
    return {part.index: part.finish_reason for chunk in chunks for part in chunk.choices if part.finish_reason}


def closing(token_ids: dict[str, int]) -> dict[str, int]:
    """Return a bias to what closes and ends: a random model would never end otherwise.

    A quotation mark comes before a bracket, which a string may hold for ever, and a bracket before a comma.
    """
    ends = [token for token in token_ids if not token.strip('"}]')] + ["<|im_end|>"]
    closers = {str(token_ids[token]): 100 if '"' in token else 60 for token in ends}
    others = {str(number): -100 for token, number in token_ids.items() if not token.strip("ĠĊčĉ,")}
    return {**closers, **others}


@pytest.mark.parametrize("model", [CHAT, "demo-chat"])
def test_whole_answer_is_complete(client: OpenAI, model: str) -> None:
    raw = client.chat.completions.with_raw_response.create(model=model, messages=ASKED, max_tokens=12)
    answer = raw.parse()
    assert raw.headers["x-request-id"] == answer._request_id
    assert len(raw.headers.get_list("x-request-id")) == 1
    assert int(raw.headers["x-ratelimit-remaining-requests"]) < 1_000_000
    assert (answer.object, answer.model) == ("chat.completion", CHAT)
    (choice,) = answer.choices
    assert choice.finish_reason == "length"
    assert choice.message.role == "assistant"
    assert len(choice.message.content or "") >= 12  # Every token of a random model is readable text.
    usage = answer.usage
    assert usage is not None
    assert usage.completion_tokens == 12
    assert usage.total_tokens == usage.prompt_tokens + 12
    assert usage.prompt_tokens_details is not None


def test_stream_says_the_same_as_the_whole_answer(client: OpenAI) -> None:
    whole = client.chat.completions.create(model=CHAT, messages=ASKED, max_tokens=24, temperature=0)
    chunks = list(
        client.chat.completions.create(
            model=CHAT,
            messages=ASKED,
            max_tokens=24,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert streamed_text(chunks) == whole.choices[0].message.content
    assert streamed_reasons(chunks) == {0: "length"}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == 24
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])


@pytest.mark.parametrize("stream", [False, True])
def test_two_choices_are_answered_apart(client: OpenAI, stream: bool) -> None:
    asked: dict[str, Any] = {"model": CHAT, "messages": ASKED, "max_tokens": 8, "n": 2}
    if stream:
        chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        texts = [streamed_text(chunks, index) for index in (0, 1)]
        reasons = streamed_reasons(chunks)
        usage = chunks[-1].usage
    else:
        answer = client.chat.completions.create(**asked)
        texts = [choice.message.content or "" for choice in sorted(answer.choices, key=lambda one: one.index)]
        reasons = {choice.index: choice.finish_reason for choice in answer.choices}
        usage = answer.usage
    assert reasons == {0: "length", 1: "length"}
    assert all(texts)
    assert texts[0] != texts[1]
    assert usage is not None
    assert usage.completion_tokens == 16


@pytest.mark.parametrize("stream", [False, True])
def test_stop_string_ends_the_answer_before_it(client: OpenAI, stream: bool) -> None:
    asked: dict[str, Any] = {"model": CHAT, "messages": ASKED, "max_tokens": 40, "temperature": 0}
    text = client.chat.completions.create(**asked).choices[0].message.content or ""
    word = text[20:26]  # Wherever words begin and end in what a random model writes.
    asked["stop"] = [word, "never said"]
    if stream:
        chunks = list(client.chat.completions.create(**asked, stream=True))
        told, reasons = streamed_text(chunks), streamed_reasons(chunks)
    else:
        choice = client.chat.completions.create(**asked).choices[0]
        told, reasons = choice.message.content or "", {0: choice.finish_reason}
    assert told == text[: text.index(word)]
    assert reasons == {0: "stop"}


def test_same_seed_says_the_same(client: OpenAI) -> None:
    def ask(**fields: Any) -> str | None:
        answer = client.chat.completions.create(model=CHAT, messages=ASKED, max_tokens=16, **fields)
        assert answer.system_fingerprint
        return answer.choices[0].message.content

    assert ask(seed=7) == ask(seed=7)
    assert ask(seed=7) != ask(seed=8)
    assert ask(temperature=0, seed=1) == ask(temperature=0, seed=2)


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_belong_to_the_text(client: OpenAI, stream: bool) -> None:
    asked: dict[str, Any] = {"model": CHAT, "messages": ASKED, "max_tokens": 6, "logprobs": True, "top_logprobs": 3}
    if stream:
        chunks = list(client.chat.completions.create(**asked, stream=True))
        text = streamed_text(chunks)
        tokens = [
            token
            for chunk in chunks
            for part in chunk.choices
            if part.logprobs is not None
            for token in part.logprobs.content or ()
        ]
    else:
        choice = client.chat.completions.create(**asked).choices[0]
        text = choice.message.content or ""
        assert choice.logprobs is not None
        tokens = list(choice.logprobs.content or ())
    assert len(tokens) == 6
    assert "".join(token.token for token in tokens) == text
    assert b"".join(bytes(token.bytes or ()) for token in tokens).decode() == text
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 3 for token in tokens)


@pytest.mark.parametrize("stream", [False, True])
def test_strict_schema_is_kept(client: OpenAI, stream: bool) -> None:
    asked: dict[str, Any] = {
        "model": CHAT,
        "messages": ASKED,
        "max_tokens": 100,
        "response_format": {"type": "json_schema", "json_schema": {"name": "c", "strict": True, "schema": COLOUR}},
    }
    if stream:
        chunks = list(client.chat.completions.create(**asked, stream=True))
        text, reasons = streamed_text(chunks), streamed_reasons(chunks)
    else:
        choice = client.chat.completions.create(**asked).choices[0]
        text, reasons = choice.message.content or "", {0: choice.finish_reason}
    assert reasons == {0: "stop"}
    check_colour(json.loads(text))


def check_colour(told: Any) -> None:
    assert told.keys() == {"colour", "is_large", "size"}
    assert told["colour"] in ("red", "green", "blue")
    assert isinstance(told["is_large"], bool)
    assert told["size"] in (1, 2, 3)


def test_json_object_is_one(client: OpenAI, token_ids: dict[str, int]) -> None:
    choice = client.chat.completions.create(
        model=CHAT,
        messages=ASKED,
        max_tokens=200,
        response_format={"type": "json_object"},
        logit_bias=closing(token_ids),
    ).choices[0]
    assert choice.finish_reason == "stop"
    assert isinstance(json.loads(choice.message.content or ""), dict)


def called(client: OpenAI, stream: bool, **fields: Any) -> tuple[list[tuple[str, str, str]], str | None, str]:
    """Return the id, name and arguments of each call, the finish reason, and the text beside them."""
    asked: dict[str, Any] = {"model": CHAT, "messages": ASKED, "max_tokens": 120, "tools": TOOLS, **fields}
    if not stream:
        choice = client.chat.completions.create(**asked).choices[0]
        calls = [(one.id, one.function.name, one.function.arguments) for one in choice.message.tool_calls or ()]
        return calls, choice.finish_reason, choice.message.content or ""
    chunks = list(client.chat.completions.create(**asked, stream=True))
    gathered: dict[int, list[str]] = {}
    for chunk in chunks:
        for part in chunk.choices:
            for call in part.delta.tool_calls or ():
                if call.index not in gathered:
                    assert call.type == "function"
                    gathered[call.index] = [call.id, call.function.name, ""]
                gathered[call.index][2] += call.function.arguments or ""
    calls = [(one[0], one[1], one[2]) for _, one in sorted(gathered.items())]
    return calls, streamed_reasons(chunks)[0], streamed_text(chunks)


@pytest.mark.parametrize("stream", [False, True])
def test_named_tool_is_called_with_arguments_that_fit(client: OpenAI, token_ids: dict[str, int], stream: bool) -> None:
    choice = {"type": "function", "function": {"name": "paint"}}
    calls, reason, text = called(client, stream, tool_choice=choice, logit_bias=closing(token_ids))
    ((call_id, name, arguments),) = calls
    assert call_id.startswith("call_")
    assert name == "paint"
    check_colour(json.loads(arguments))
    assert reason in ("stop", "tool_calls")
    assert text == ""


@pytest.mark.parametrize("stream", [False, True])
def test_required_tool_is_called(client: OpenAI, token_ids: dict[str, int], stream: bool) -> None:
    calls, reason, text = called(client, stream, tool_choice="required", logit_bias=closing(token_ids))
    assert calls
    for _, name, arguments in calls:
        if name == "paint":
            check_colour(json.loads(arguments))
        else:
            assert (name, isinstance(json.loads(arguments), dict)) == ("wait", True)
    assert reason == "tool_calls"
    assert text == ""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["none", "auto"])
def test_tools_that_nobody_calls_leave_text(client: OpenAI, choice: str, stream: bool) -> None:
    calls, reason, text = called(client, stream, tool_choice=choice, max_tokens=12)
    assert calls == []
    assert reason == "length"
    assert text


def test_conversation_with_every_role_and_parts_is_answered(client: OpenAI) -> None:
    messages: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        {
            "role": "user",
            "name": "ann",
            "content": [{"type": "text", "text": "Paint"}, {"type": "text", "text": "it."}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "paint", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    ]
    answer = client.chat.completions.create(
        model=CHAT, messages=messages, tools=TOOLS, max_tokens=6, tool_choice="none"
    )
    assert answer.choices[0].message.content


def test_prompt_that_is_too_long_is_refused_with_its_length(client: OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "river " * 6000}]
    for fields in ({}, {"stream": True}):
        with pytest.raises(BadRequestError) as refused:
            client.chat.completions.create(model=CHAT, messages=messages, **fields)
        assert refused.value.code == "context_length_exceeded"
        assert refused.value.param == "messages"
        assert refused.value.type == "invalid_request_error"
        assert "This model's maximum context length is 4096 tokens. However, your messages resulted in" in str(
            refused.value
        )


def test_unknown_models_are_not_found_and_those_of_another_kind_refused(client: OpenAI) -> None:
    with pytest.raises(NotFoundError) as unknown:
        client.chat.completions.create(model="manta/none", messages=ASKED)
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(BadRequestError):
        client.chat.completions.create(model=EMBED, messages=ASKED)


def test_models_are_listed_and_found_by_either_spelling(client: OpenAI, service: Service) -> None:
    listed = {model.id: model for model in client.models.list()}
    assert listed.keys() >= {CHAT, TRAINED, EMBED}
    assert listed[CHAT].owned_by == "manta"
    assert client.models.retrieve(CHAT) == listed[CHAT]  # Sends the slash encoded.
    raw = client.get("/models/manta/demo-chat", cast_to=object)
    assert isinstance(raw, dict)
    assert raw["id"] == CHAT
    with pytest.raises(NotFoundError) as unknown:
        client.models.retrieve("manta/none")
    assert unknown.value.code == "model_not_found"


def test_repeated_prefix_is_cached_for_its_own_account_only(service: Service, client: OpenAI) -> None:
    prompt = "The tide comes in twice a day, and the boats wait for it. " * 40

    def cached(asking: OpenAI) -> int:
        answer = asking.chat.completions.create(
            model=CHAT, messages=[{"role": "user", "content": prompt}], max_tokens=2
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        return answer.usage.prompt_tokens_details.cached_tokens or 0

    assert cached(client) == 0
    assert cached(client) > 300
    with OpenAI(base_url=f"{service.url}/v1", api_key=service.issue_unlimited("neighbour"), max_retries=0) as other:
        assert cached(other) == 0
        assert cached(other) > 300
