"""One dialogue: what is said, which tools there are, and what a right last answer holds.

`render` writes it as the chat template does, in pieces that say which of them the model itself writes. A unit
test keeps the two the same.
"""

import json
from dataclasses import dataclass, field
from typing import Any

IM_START, IM_END = "<|im_start|>", "<|im_end|>"


@dataclass(slots=True)
class Dialogue:
    """A dialogue whose last message is the model's.

    The last answer is right when it holds every text of `needles`, or makes the calls that the
    last message makes, where it makes any. `thought` is what the model thinks before its last answer; `schema` is
    the JSON schema that the engine holds that answer to.
    """

    skill: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    thought: str | None = None
    needles: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None

    def system(self, text: str) -> "Dialogue":
        """Add the system's message."""
        self.messages.append({"role": "system", "content": text})
        return self

    def turn(self, question: str, answer: str) -> "Dialogue":
        """Add a question and its answer."""
        self.messages.append({"role": "user", "content": question})
        self.messages.append({"role": "assistant", "content": answer})
        return self

    def call(self, question: str, calls: list[tuple[str, dict[str, Any]]]) -> "Dialogue":
        """Add a question that is answered by calling tools."""
        self.messages.append({"role": "user", "content": question})
        rendered = [
            {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for index, (name, arguments) in enumerate(calls)
        ]
        self.messages.append({"role": "assistant", "content": None, "tool_calls": rendered})
        return self

    def results(self, results: list[str], answer: str) -> "Dialogue":
        """Add what the tools returned, and the answer that the model makes of it."""
        for index, result in enumerate(results):
            self.messages.append({"role": "tool", "tool_call_id": f"call_{index}", "content": result})
        self.messages.append({"role": "assistant", "content": answer})
        return self

    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the calls of the last message."""
        calls = self.messages[-1].get("tool_calls") or []
        return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def render(dialogue: Dialogue) -> list[tuple[str, bool]]:
    """Return the dialogue's text in pieces, each with whether the model writes it."""
    pieces: list[tuple[str, bool]] = []
    messages = dialogue.messages
    if dialogue.tools and messages[0]["role"] != "system":
        pieces.append((f"{IM_START}system\n{_render_tools(dialogue.tools)}{IM_END}\n", False))
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            is_last = index == len(messages) - 1
            opening = "<think>\n" if is_last and dialogue.thought is not None else ""
            pieces.append((f"{IM_START}assistant\n{opening}", False))
            thought = f"{dialogue.thought}</think>" if opening else ""
            answer = render_answer(message) + IM_END
            if is_last and dialogue.schema is not None:
                # The engine begins the object: the model is not to do so unasked.
                pieces.append((answer[:2], False))
                answer = answer[2:]
            pieces.append((thought + answer, True))
            pieces.append(("\n", False))
            continue
        text = message["content"]
        if message["role"] == "tool":
            text = f"<tool_response>\n{text}\n</tool_response>"
        elif index == 0 and message["role"] == "system" and dialogue.tools:
            text += f"\n\n{_render_tools(dialogue.tools)}"
        pieces.append((f"{IM_START}{message['role']}\n{text}{IM_END}\n", False))
    return pieces


def render_answer(message: dict[str, Any]) -> str:
    """Return what the model writes for one message of its own."""
    parts = [message["content"]] if message["content"] else []
    for call in message.get("tool_calls") or []:
        function = call["function"]
        named = f'{{"name": {_dumps(function["name"])}, "arguments": {_dumps(function["arguments"])}}}'
        parts.append(f"<tool_call>\n{named}\n</tool_call>")
    return "\n".join(parts)


def _render_tools(tools: list[dict[str, Any]]) -> str:
    lines = [f"\n{_render_tool(tool['function'])}" for tool in tools]
    return f"You may call these functions:\n<tools>{''.join(lines)}\n</tools>"


def _render_tool(function: dict[str, Any]) -> str:
    parameters = function["parameters"]
    listed = [
        f"{name}{'' if name in parameters['required'] else '?'}: {schema['type']}"
        for name, schema in parameters["properties"].items()
    ]
    return f"{function['name']}({', '.join(listed)}): {function['description']}"


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
