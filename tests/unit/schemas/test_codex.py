"""Codex's catalogue of models."""

import pytest

from deployments.models.config import ModelConfig
from deployments.models.contract.engine import ModelCard
from deployments.operations import operations_of
from serve_app.schemas.codex import codex_catalogue


def card(model_id: str, **more) -> ModelCard:
    return ModelCard(model_id, operations_of("generate"), 32_768, 1, "me", **{"has_tools": True, **more})


def test_a_model_is_described_by_what_its_configuration_knows() -> None:
    seeing = card("acme/seer", has_images=True, has_reasoning=True, description="Sees.")
    plain, able = codex_catalogue([card("plain"), seeing])["models"]
    assert (plain["slug"], plain["context_window"], plain["input_modalities"]) == ("plain", 32_768, ["text"])
    assert (plain["supported_reasoning_levels"], plain["supports_reasoning_summaries"]) == ([], False)
    assert (able["description"], able["input_modalities"]) == ("Sees.", ["text", "image"])
    assert able["default_reasoning_level"] in [level["effort"] for level in able["supported_reasoning_levels"]]
    assert [plain["priority"], able["priority"]] == [0, 1]


def test_every_field_that_codex_needs_is_there() -> None:
    """Those of its `ModelInfo` that have no default."""
    needed = {
        "slug", "display_name", "description", "supported_reasoning_levels", "shell_type", "visibility", "priority",
        "supported_in_api", "upgrade", "base_instructions", "supports_reasoning_summaries", "support_verbosity",
        "default_verbosity", "apply_patch_tool_type", "truncation_policy", "supports_parallel_tool_calls",
        "experimental_supported_tools", "availability_nux",
    }  # fmt: skip
    (model,) = codex_catalogue([card("m")])["models"]
    assert needed <= model.keys()
    assert model["shell_type"] == "unified_exec"


@pytest.mark.parametrize(("parser", "offered"), [("hermes", "freeform"), ("qwen3_coder", None)])
def test_patches_are_offered_where_the_model_can_be_held_to_their_grammar(parser, offered) -> None:
    model = ModelConfig(id="m", source="demo:tiny-chat", max_model_len=4096, tool_parser=parser)
    (found,) = codex_catalogue([model.card])["models"]
    assert found["apply_patch_tool_type"] == offered


def test_models_that_codex_cannot_work_with_are_left_out() -> None:
    silent = ModelCard("e", operations_of("embed"), 512, 1, "me")
    assert codex_catalogue([card("a", has_tools=False), silent]) == {"models": []}


def test_a_small_context_is_not_filled_by_one_output() -> None:
    (model,) = codex_catalogue([ModelCard("s", operations_of("generate"), 4096, 1, "me", has_tools=True)])["models"]
    assert model["truncation_policy"] == {"mode": "tokens", "limit": 1024}
