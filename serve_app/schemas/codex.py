"""The catalogue of models that Codex reads, from `GET /v1/models` or from a file of its own."""

from collections.abc import Iterable
from typing import Any, Final, Literal

from typing_extensions import TypedDict

from deployments.models.contract.engine import ModelCard
from deployments.operations import Operation

_OUTPUT_TOKENS: Final = 10_000
"""How much of a command's output Codex shows the model."""
_EFFORTS: Final = {"low": "Reasons little, answers soon", "medium": "For everyday work", "high": "For hard problems"}
_INSTRUCTIONS: Final = """You are a coding agent. You work in the user's folder through the tools you are given.

- Do what the user asks until it is done; then say in a few sentences what you changed and what you checked.
- Look before you write: search for files and read them instead of guessing what they hold.
- Change as little as the task needs, in the style of the code around it. Fix causes, not symptoms.
- Edit files with `apply_patch` where you have it: its input is from `*** Begin Patch` to `*** End Patch`.
- Run the tests or the program if there is a way to, and fix what you broke.
- Leave alone what others changed. Do not commit, delete or install anything unless the user asks for it.
- A file named AGENTS.md has instructions for its folder and those below. What the user says goes first.
"""


class CodexModel(TypedDict):
    """One model as Codex describes it to itself. `context_window` is in tokens."""

    slug: str
    display_name: str
    description: str | None
    context_window: int
    input_modalities: list[Literal["text", "image"]]
    supported_reasoning_levels: list[dict[str, str]]
    default_reasoning_level: str | None
    supports_reasoning_summaries: bool
    supports_parallel_tool_calls: bool
    apply_patch_tool_type: Literal["freeform"] | None
    shell_type: Literal["unified_exec"]
    truncation_policy: dict[str, Any]
    base_instructions: str
    support_verbosity: bool
    default_verbosity: None
    experimental_supported_tools: list[str]
    visibility: Literal["list"]
    supported_in_api: bool
    priority: int
    availability_nux: None
    upgrade: None


class CodexCatalogue(TypedDict):
    """The models that Codex can work with."""

    models: list[CodexModel]


def codex_catalogue(cards: Iterable[ModelCard]) -> CodexCatalogue:
    """Return the entries of the models that offer responses and call tools; the first comes first in Codex's list."""
    able = [card for card in cards if card.has_tools and Operation.RESPONSES in card.operations]
    return {"models": [_entry(card, number) for number, card in enumerate(able)]}


def _entry(card: ModelCard, priority: int) -> CodexModel:
    efforts = _EFFORTS if card.has_reasoning else {}
    return {
        "slug": card.id,
        "display_name": card.id,
        "description": card.description or None,
        "context_window": card.max_model_len,
        "input_modalities": ["text", "image"] if card.has_images else ["text"],
        "supported_reasoning_levels": [{"effort": effort, "description": about} for effort, about in efforts.items()],
        "default_reasoning_level": "medium" if efforts else None,
        "supports_reasoning_summaries": card.has_reasoning,
        "supports_parallel_tool_calls": True,
        "apply_patch_tool_type": "freeform" if card.holds_grammars else None,  # Its patches have a grammar.
        "shell_type": "unified_exec",
        "truncation_policy": {"mode": "tokens", "limit": min(_OUTPUT_TOKENS, max(1, card.max_model_len // 4))},
        "base_instructions": _INSTRUCTIONS,
        "support_verbosity": False,
        "default_verbosity": None,
        "experimental_supported_tools": [],
        "visibility": "list",
        "supported_in_api": True,
        "priority": priority,
        "availability_nux": None,
        "upgrade": None,
    }
