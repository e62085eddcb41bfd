"""One request as its client saw it: the history that a round leaves is a list of these. Nothing here judges."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["stream", "whole", "embedding", "turn"]


@dataclass
class Exchange:
    """What was sent, and all that came back. Times are seconds since the round began; None where it did not happen.

    `ends` has an entry for each thing that ends an answer, in order: "finish:REASON" of each choice, "[DONE]", "error".
    A whole answer has the same without "[DONE]". `after_end` counts the events that came after "[DONE]".
    """

    number: int
    kind: Kind
    prompt: str
    door: str
    """The node that the client was connected to."""
    started: float
    port: int = 0
    """The client's own port; 0 where no connection was made."""
    status: int | None = None
    retry_after: str | None = None
    request_id: str | None = None
    first_byte: float | None = None
    ended: float | None = None
    longest_wait_s: float = 0.0
    """The longest time in which nothing came: before the first byte or between two."""
    parts: dict[str, str] = field(default_factory=dict)
    """The text by where it stands: "0.content", "0.reasoning", "0.call.0" and so on, the number being the choice."""
    ends: list[str] = field(default_factory=list)
    after_end: int = 0
    error: Any = None
    """The error object of a refusal or of a stream's error event; the text of a body that holds none."""
    lost: str | None = None
    """How the connection failed, where it did."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the answer says of itself that it is whole."""
        return self.status == 200 and self.lost is None and self.error is None and self.ends[-1:] == [self._last]

    @property
    def _last(self) -> str:
        if self.kind == "stream":
            return "[DONE]"
        return next((end for end in reversed(self.ends) if end.startswith("finish:")), "no finish")

    def add_event(self, data: bytes) -> None:
        """Add what an event of a stream carries."""
        if "[DONE]" in self.ends:
            self.after_end += 1
        if data == b"[DONE]":
            self.ends.append("[DONE]")
            return
        self.add_object(json.loads(data), "delta")

    def add_object(self, told: dict[str, Any], content: str = "message") -> None:
        """Add a chunk of a stream, a whole answer, or an error."""
        if "error" in told:
            self.error = told["error"]
            self.ends.append("error")
            return
        for choice in told.get("choices") or []:
            self._add_choice(choice, choice.get(content) or {})
        if usage := told.get("usage"):
            self.prompt_tokens, self.completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]

    def _add_choice(self, choice: dict[str, Any], said: dict[str, Any]) -> None:
        place = str(choice["index"])
        texts = {"content": said.get("content") or choice.get("text"), "reasoning": said.get("reasoning_content")}
        for call in said.get("tool_calls") or []:
            function = call["function"]
            texts[f"call.{call.get('index', 0)}"] = (function.get("name") or "") + (function.get("arguments") or "")
        for name, text in texts.items():
            if text:
                self.parts[f"{place}.{name}"] = self.parts.get(f"{place}.{name}", "") + text
        if choice.get("finish_reason"):
            self.ends.append(f"finish:{choice['finish_reason']}")
