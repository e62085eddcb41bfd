"""How long a text may be that is tokenized."""

import pytest

from serve_app.errors.api import BadRequest
from serve_app.operations.tokenize import check_length
from serve_app.schemas.tokenization import TokenizeRequest
from tests.twins.engine import model_card


@pytest.mark.parametrize(
    ("context", "most"), [(512, 8192), (16_384, 262_144), (131_072, 262_144), (1_048_576, 1_048_576)]
)
def test_text_may_be_longer_than_the_context_and_not_too_long(context, most):
    card = model_card("m", max_model_len=context)
    check_length(most, card, "prompt")
    with pytest.raises(BadRequest, match=f"at most {most} tokens") as refused:
        check_length(most + 1, card, "prompt")
    assert (refused.value.param, refused.value.code) == ("prompt", "context_length_exceeded")


@pytest.mark.parametrize(
    "about",
    [{"description": "word " * 8_000}, {"parameters": {"description": "word " * 8_000}}],
    ids=["description", "parameters"],
)
def test_tools_count_as_messages_do(about):
    tools = [{"type": "function", "function": {"name": "f", **about}}]
    chat = TokenizeRequest.model_validate(
        {"model": "m", "messages": [{"role": "user", "content": "Hi."}], "tools": tools}
    )
    assert 10_000 <= chat.estimate_tokens() < 10_100
