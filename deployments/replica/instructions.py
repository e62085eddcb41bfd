"""Instructions where a chat template takes them. Agents send them in the middle of a conversation, too.

Many templates take one system message, at the beginning; for another one they raise, or leave it out. Some take none.
There an instruction becomes part of what the user says at that place. Moving it up to the first message would change
the beginning of the prompt with each new one, and the prefix cache would find nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

Message = dict[str, Any]
Places = str
"""Which system messages a template shows: `anywhere`, the `first` message, or `none`."""

_SYSTEM: Final = "system"
_TALKS: Final = (
    ("anywhere", (_SYSTEM, _SYSTEM, "user", _SYSTEM, "assistant", "user", _SYSTEM)),
    ("first", (_SYSTEM, "user", "assistant", "user")),
    ("none", ("user", "assistant", "user")),
)
"""What a template takes if it shows every message of a conversation with these roles; the first that fits holds."""


def places_of(render: Callable[[list[Message]], str], *, in_parts: bool = False) -> Places:
    """Return where a template shows system messages; `anywhere` if it shows no conversation at all.

    `render` applies the template. Contents are texts, or parts of text.
    """
    for places, roles in _TALKS:
        texts = [f"Message {number}." for number in range(len(roles))]
        talk = [
            {"role": role, "content": _parts(text) if in_parts else text}
            for role, text in zip(roles, texts, strict=True)
        ]
        if _shows(render, talk, texts):
            return places
    return "anywhere"


def _shows(render: Callable[[list[Message]], str], talk: list[Message], texts: Sequence[str]) -> bool:
    try:
        prompt = render(talk)
    except Exception:  # Templates raise what they like.
        return False
    return all(text in prompt for text in texts)


def has_instructions(conversation: Sequence[Message]) -> bool:
    """Return whether there is a system message in a conversation."""
    return any(message["role"] == _SYSTEM for message in conversation)


def placed(conversation: Sequence[Message], places: Places) -> list[Message]:
    """Return a conversation whose system messages are where a template shows them; those before the user are one."""
    if places == "anywhere":
        return list(conversation)
    kept: list[Message] = []
    is_beginning = places == "first"
    for message in conversation:
        is_beginning = is_beginning and message["role"] == _SYSTEM
        if message["role"] == _SYSTEM and not is_beginning:
            message = {**message, "role": "user", "content": _marked(message["content"])}
        last = kept[-1] if kept else None
        if last is not None and last["role"] == message["role"] and (is_beginning or message["role"] == "user"):
            kept[-1] = {**last, "content": _joined(last["content"], message["content"])}
        else:
            kept.append(message)
    return kept


def _marked(content: Any) -> Any:
    """Return an instruction as the user's words, so that the model can tell the two apart."""
    if isinstance(content, str):
        return f"<system>\n{content}\n</system>"
    return [*_parts("<system>"), *content, *_parts("</system>")]


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_parts(first), *_parts(second)]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
