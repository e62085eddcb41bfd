"""Asks a service that runs, through its public interface, as clients do."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai

from tests.tools.demo_model.dialogue import Dialogue
from tests.tools.demo_model.evaluation import Answer, Asker
from tests.tools.demo_model.structured import schema_of

_MOST_TOKENS, _AT_ONCE = 120, 8


class Service:
    """One model of a service, in the ways in which it can be asked."""

    def __init__(self, client: openai.OpenAI, model: str) -> None:
        self._client = client
        self._model = model

    def askers(self) -> dict[str, tuple[tuple[str, ...], Asker]]:
        """Return each way to ask by name, with the skills that are asked so; no skills mean all."""
        return {
            "chat completions": ((), self.each(self.chat)),
            "responses, by previous_response_id": (("memory", "style", "tasks"), self.each(self._responses)),
            "chat completions, guided": (("json",), self.each(self._guided)),
        }

    @staticmethod
    def each(ask: Callable[[Dialogue], Answer]) -> Asker:
        """Return what asks several dialogues at once."""

        def ask_all(dialogues: Sequence[Dialogue]) -> Iterator[Answer]:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                yield from pool.map(ask, dialogues)

        return ask_all

    def _guided(self, dialogue: Dialogue) -> Answer:
        return self.chat(dataclasses.replace(dialogue, schema=dialogue.schema or schema_of(dialogue)))

    def chat(self, dialogue: Dialogue) -> Answer:
        """Ask by chat completions."""
        options: dict[str, Any] = {}
        if dialogue.tools:
            options["tools"] = dialogue.tools
        if dialogue.thought is not None:
            options["reasoning_effort"] = "low"
        if dialogue.schema is not None:
            named = {"name": "answer", "strict": True, "schema": dialogue.schema}
            options["response_format"] = {"type": "json_schema", "json_schema": named}
        completion = self._client.chat.completions.create(
            model=self._model,
            messages=_to_wire(dialogue.messages[:-1]),
            temperature=0,
            max_tokens=_MOST_TOKENS,
            **options,
        )
        choice = completion.choices[0]
        message = choice.message
        calls = tuple(_call(call.function.name, call.function.arguments) for call in message.tool_calls or [])
        extra = message.model_extra or {}
        thought = extra.get("reasoning") or extra.get("reasoning_content")
        return Answer(message.content or "", calls, thought, choice.finish_reason in ("stop", "tool_calls"))

    def _responses(self, dialogue: Dialogue) -> Answer:
        messages = dialogue.messages
        instructions = messages[0]["content"] if messages[0]["role"] == "system" else None
        previous, status, text = None, "", ""
        for message in messages:
            if message["role"] == "user":
                response = self._client.responses.create(
                    model=self._model,
                    input=message["content"],
                    instructions=instructions,
                    previous_response_id=previous,
                    temperature=0,
                    max_output_tokens=_MOST_TOKENS,
                )
                previous, status, text = response.id, response.status, response.output_text
        return Answer(text, has_stopped=status == "completed")


def _call(name: str, arguments: str) -> tuple[str, dict[str, Any]]:
    return name, json.loads(arguments)


def _to_wire(messages: list[dict[str, Any]]) -> Any:
    """Return messages as a client sends them: a call's arguments are a text of JSON."""
    sent = []
    for message in messages:
        message = dict(message)
        if calls := message.get("tool_calls"):
            message["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
                for call in calls
            ]
        sent.append(message)
    return sent
