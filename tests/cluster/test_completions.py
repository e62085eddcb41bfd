"""Legacy completions from the real engine."""

from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from tests.service import CHAT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

PROMPT = "The river runs"


def test_prompt_is_continued(client: OpenAI) -> None:
    answer = client.completions.create(model=CHAT, prompt=PROMPT)
    assert answer.object == "text_completion"
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].text
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16  # OpenAI's default for this route.


def test_stream_says_the_same_as_the_whole_answer(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": CHAT, "prompt": PROMPT, "max_tokens": 20, "temperature": 0}
    whole = client.completions.create(**asked).choices[0].text
    chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 20


def test_echo_gives_the_prompt_back(client: OpenAI) -> None:
    answer = client.completions.create(model=CHAT, prompt=PROMPT, echo=True, max_tokens=4)
    assert answer.choices[0].text.startswith(PROMPT)
    assert len(answer.choices[0].text) > len(PROMPT)


def test_logprobs_belong_to_the_text(client: OpenAI) -> None:
    choice = client.completions.create(model=CHAT, prompt=PROMPT, logprobs=2, max_tokens=5).choices[0]
    shown = choice.logprobs
    assert shown is not None
    assert "".join(shown.tokens or ()) == choice.text
    assert len(shown.token_logprobs or ()) == 5
    assert all(len(top or {}) >= 2 for top in shown.top_logprobs or ())


def test_several_prompts_in_tokens_and_choices_are_answered_in_order(client: OpenAI) -> None:
    answer = client.completions.create(model=CHAT, prompt=[[100, 200, 300], [400, 500]], n=2, max_tokens=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 5
    assert answer.usage.completion_tokens == 12


def test_token_that_is_not_in_the_vocabulary_is_refused(client: OpenAI) -> None:
    with pytest.raises(BadRequestError):
        client.completions.create(model=CHAT, prompt=[5_000_000], max_tokens=3)
    assert client.completions.create(model=CHAT, prompt=PROMPT, max_tokens=2).choices[0].text


def test_prompt_that_is_too_long_is_refused(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as refused:
        client.completions.create(model=CHAT, prompt=[100] * 5000)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "prompt")
