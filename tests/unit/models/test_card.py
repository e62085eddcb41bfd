"""What the ingress knows of a model, from its configuration."""

import pytest

from deployments.models.config import ModelConfig

MODEL = {"id": "demo/chat", "source": "demo:chat", "max_model_len": 512}


@pytest.mark.parametrize(("parser", "can"), [("tool_parser", "has_tools"), ("reasoning_parser", "has_reasoning")])
def test_a_model_calls_tools_and_thinks_only_where_a_parser_is_named_for_it(parser, can):
    plain, told = ModelConfig(**MODEL), ModelConfig(**MODEL, **{parser: "hermes"})
    assert (getattr(plain.card, can), getattr(told.card, can)) == (False, True)


def test_a_model_has_its_aliases_and_the_description_of_the_operator():
    card = ModelConfig(**MODEL, aliases=["chat"], description="For support.").card
    assert (card.aliases, card.description) == (("chat",), "For support.")
    assert (ModelConfig(**MODEL).card.aliases, ModelConfig(**MODEL).card.description) == ((), "")
