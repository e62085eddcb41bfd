"""Long sessions of coding agents: what each turn sends, and what the engine reads of it."""

from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from tokenizers import Tokenizer

from deployments.models.contract.events import Finished, ReasoningDelta, TextDelta, ToolArgumentsDelta, ToolCallStart
from deployments.models.demo.sources import resolve_source

Json = dict[str, Any]

THOUGHT = "The next file may have it. "
COMMAND = '{"cmd":"sed -n 1,20p src/part_%d.py"}'
LINES = "".join(f"    value_{line} = compute({line}, scale=0.5)  # Step {line}.\n" for line in range(20))
INSTRUCTIONS = "You are a coding agent. Read before you write. " * 200


def output_of(turn: int) -> str:
    """Return what a turn's command printed, about a kilobyte."""
    return f"def part_{turn}():\n{LINES}"


def step_of(turn: int) -> list[list[Any]]:
    """Return the events of a turn in which the model reasons, says a word and calls a tool."""
    call = f"call_{turn}"
    return [
        [ReasoningDelta("reasoning", 0, THOUGHT + str(turn))],
        [TextDelta("text", 0, f"I read part {turn}.")],
        [ToolCallStart("tool_call", 0, 0, call, "exec_command")],
        [ToolArgumentsDelta("tool_arguments", 0, 0, COMMAND % turn)],
        [Finished("finished", 0, "tool_calls")],
    ]


def _tool(number: int) -> Json:
    text = {"type": "string", "description": "A text that the command reads, in full. " * 10}
    return {
        "name": "exec_command" if number == 0 else f"tool_{number}",
        "description": "Runs a command in the sandbox and returns what it prints. " * 20,
        "parameters": {"type": "object", "properties": {"cmd": text, "why": text}, "required": ["cmd"]},
    }


TOOLS = [_tool(number) for number in range(20)]


class Codex:
    """A session over /v1/responses that sends its whole history, as with `store: false` over HTTP."""

    path = "/v1/responses"

    def __init__(self, model: str) -> None:
        self._body = {
            "model": model,
            "stream": True,
            "store": False,
            "instructions": INSTRUCTIONS,
            "tools": [{"type": "function", "strict": False, **tool} for tool in TOOLS],
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"effort": "medium", "summary": "auto"},
            "prompt_cache_key": "session",
            "client_metadata": {"session_id": "session"},
        }
        self._items: list[Json] = [{"type": "message", "role": "user", "content": "Find the wrong part."}]
        self._new = list(self._items)
        self._previous: str | None = None

    def next(self, turn: int) -> Json:
        """Return the body of the next request."""
        metadata = {"session_id": "session", "turn_id": f"turn_{turn}"}
        return {**self._body, "input": list(self._items), "client_metadata": metadata}

    def next_message(self, turn: int) -> Json:
        """Return the next message over a WebSocket, which has the new items alone."""
        told = {"type": "response.create", "previous_response_id": self._previous}
        return {**self.next(turn), **told, "input": self._new}

    def take(self, final: Json, turn: int) -> None:
        """Take the response, and run its call."""
        self._previous = final["id"]
        for item in final["output"]:
            self._items.append({name: value for name, value in item.items() if value is not None})
        self._new = [{"type": "function_call_output", "call_id": f"call_{turn}", "output": output_of(turn)}]
        self._items += self._new


class ClaudeCode:
    """A session over /v1/messages, with a billing header that changes with every request."""

    path = "/v1/messages"

    def __init__(self, model: str) -> None:
        self._body = {
            "model": model,
            "max_tokens": 32_000,
            "stream": True,
            "thinking": {"type": "adaptive", "display": "omitted"},
            "output_config": {"effort": "medium"},
            "tools": [
                {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}
                for tool in TOOLS
            ],
        }
        self._turns: list[Json] = [{"role": "user", "content": "Find the wrong part."}]

    def next(self, turn: int) -> Json:
        """Return the body of the next request; the last block of the history has the mark for the cache."""
        header = f"x-anthropic-billing-header: cc_version=2.1.332; cch={turn:05x};"
        mark = {"cache_control": {"type": "ephemeral"}}
        system = [{"type": "text", "text": header}, {"type": "text", "text": INSTRUCTIONS, **mark}]
        *before, last = self._turns
        if isinstance(last["content"], list):
            last = {**last, "content": [*last["content"][:-1], {**last["content"][-1], **mark}]}
        return {**self._body, "system": system, "messages": [*before, last]}

    def take(self, message: Json, turn: int) -> None:
        """Take the message, and run its call."""
        self._turns.append({"role": "assistant", "content": message["content"]})
        result = {"type": "tool_result", "tool_use_id": f"call_{turn}", "content": output_of(turn)}
        self._turns.append({"role": "user", "content": [result]})


@cache
def _demo() -> tuple[jinja2.Template, Tokenizer]:
    place = Path(resolve_source("demo:trained"))
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    template = environment.from_string((place / "chat_template.jinja").read_text())
    return template, Tokenizer.from_file(str(place / "tokenizer.json"))


def text_of(chat: Json) -> str:
    """Return the prompt of a chat, by the template of the demo model."""
    template, _ = _demo()
    return template.render(
        messages=chat["messages"],
        tools=chat.get("tools"),
        add_generation_prompt=True,
        enable_thinking=chat.get("reasoning_effort", "none") != "none",
    )


def tokens_of(text: str) -> list[int]:
    """Return the tokens of a text, by the tokenizer of the demo model."""
    _, tokenizer = _demo()
    return tokenizer.encode(text, add_special_tokens=False).ids
