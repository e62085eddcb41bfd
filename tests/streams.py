"""Requests of several kinds at once, and what their answers say: for tests in which an engine dies amid them."""

import json
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.service import Service


@dataclass
class Said:
    """What one request was answered: the text of each choice, and the usage; `error` where it broke."""

    texts: dict[int, str] = field(default_factory=dict)
    usage: dict[str, Any] | None = None
    error: Any = None
    has_ended: bool = False

    def add(self, choice: int, text: str) -> None:
        self.texts[choice] = self.texts.get(choice, "") + text


@dataclass(frozen=True)
class Kind:
    """A kind of request: its route, and its body without the model."""

    path: str
    body: dict[str, Any]

    def ask(self, service: Service, key: str, model: str, said: Said) -> Said:
        """Send it, and note what comes; a stream's events as they come."""
        body = {"model": model, **self.body}
        headers = {"authorization": f"Bearer {key}"}
        with httpx2.stream("POST", f"{service.url}{self.path}", json=body, headers=headers, timeout=300) as answer:
            if answer.status_code != 200 or not body.get("stream"):
                whole = json.loads(answer.read())
                said.error = whole.get("error")
                self._take(whole, said)
                said.has_ended = answer.status_code == 200
                return said
            for line in answer.iter_lines():
                if line == "data: [DONE]":
                    said.has_ended = True
                elif line.startswith("data: "):
                    self._take(json.loads(line.removeprefix("data: ")), said)
        return said

    def _take(self, event: dict[str, Any], said: Said) -> None:
        said.error = said.error or event.get("error")
        said.usage = event.get("usage") or said.usage
        for choice in event.get("choices", ()):
            message = choice.get("delta") or choice.get("message") or choice
            text = message.get("content") or message.get("text") or ""
            for call in message.get("tool_calls") or ():
                text += call["function"].get("name", "") + call["function"]["arguments"]
            said.add(choice["index"], (message.get("reasoning_content") or "") + text)
        if event.get("type") == "response.output_text.delta":
            said.add(0, event["delta"])
        if event.get("type") in ("response.completed", "response.incomplete"):
            said.usage, said.has_ended = event["response"]["usage"], True


@dataclass
class Asked:
    """Requests that run."""

    said: list[Said]
    futures: list[Future[Said]]

    def results(self) -> list[Said]:
        return [future.result() for future in self.futures]


def ask_all(service: Service, key: str, model: str, kinds: list[Kind], threads: ThreadPoolExecutor) -> Asked:
    """Send one request of each kind at once."""
    said = [Said() for _ in kinds]
    futures = [threads.submit(kind.ask, service, key, model, one) for kind, one in zip(kinds, said, strict=True)]
    return Asked(said, futures)


def usage_of(said: Said) -> dict[str, int]:
    """Return the numbers of tokens, without those that were cached."""
    usage = said.usage or {}
    return {name: usage[name] for name in usage if name.endswith("_tokens")}
