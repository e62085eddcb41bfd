"""Turns the outputs of one choice into events, with vLLM's parsers of reasoning and tool calls.

Streamed and whole answers take the same path, so they are equal to the byte. A call that is cut off by max tokens stays
as it is: it is neither completed nor returned as text.
"""

import re
from collections.abc import Collection
from typing import Any

import orjson
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.outputs import CompletionOutput
from vllm.parser.abstract_parser import Parser
from vllm.renderers.chat_utils import make_tool_call_id
from vllm.sampling_params import SamplingParams

from deployments.models.contract.custom_tools import INPUT
from deployments.models.contract.events import Event, ReasoningDelta, TextDelta, ToolArgumentsDelta, ToolCallStart
from deployments.models.contract.text_member import TextMember
from deployments.replica.end_markers import without_end_markers

# Beginnings of '{"name': calls in plain JSON start so.
_BEGUN_CALL = re.compile(r'\s*\{\s*(?:"(?:n(?:a(?:m(?:e.*)?)?)?)?)?', re.DOTALL)


_VLLMS_PREFIX = "chatcmpl-tool-"
_NEVER = -100.0
"""The bias that excludes a token."""


class ChoiceParser:
    """vLLM's parser for the output of one choice, and the calls that it has found so far.

    If the request forbids calls, a call that the model writes nevertheless is neither returned as a call nor as text.
    `custom` has the names of custom tools: of their arguments only the text of the input is returned.
    """

    def __init__(self, parser: Parser, request: ChatCompletionRequest, custom: Collection[str] = ()) -> None:
        self.parser = parser
        self._hides_calls = request.tool_choice == "none" and marks_calls(parser)
        self._request = request.model_copy(update={"tool_choice": "auto"}) if self._hides_calls else request
        self._calls: dict[int, list[str]] = {}  # The arguments of each, so far.
        self._custom = custom
        self._inputs: dict[int, TextMember] = {}  # Of calls of custom tools.
        self._num_text = 0  # In characters, of the text that was returned.

    @property
    def has_called(self) -> bool:
        """Whether a call of a tool has begun."""
        return bool(self._calls)

    @property
    def has_broken_off(self) -> bool:
        """Whether the arguments of a call are incomplete."""
        return not all(_is_json("".join(pieces)) for pieces in self._calls.values())

    @property
    def marker(self) -> int | None:
        """The token that starts calls; None if there is no single token for it."""
        tools = self.parser.tool_parser
        return None if tools is None else tools.vocab.get(_marker_of(tools))

    def forbid_calls(self, params: SamplingParams) -> None:
        """Exclude calls that the request forbids, if a token of their own starts them."""
        if self._hides_calls and self.marker is not None:
            params.logit_bias = {**(params.logit_bias or {}), self.marker: _NEVER}

    def parse(self, part: CompletionOutput, prompt_token_ids: list[int] | None) -> list[Event]:
        """Return the events in the next output."""
        is_cut = part.finish_reason == "length"
        has_ended = part.finish_reason is not None
        pieces = self._pieces(part)
        events: list[Event] = []
        for number, (text, token_ids) in enumerate(pieces, 1):
            finished = has_ended and not is_cut and number == len(pieces)
            events += self._parsed(part.index, text, token_ids, prompt_token_ids, finished=finished)
        if is_cut and (not self._calls or self._writes_json()):
            events += self._rest(part.index, prompt_token_ids)
        if has_ended:
            events += self._unread_input(part.index)
            if text := self._held_back(is_cut):
                events.append(TextDelta("text", part.index, text))
        return events

    def _rest(self, choice: int, prompt_token_ids: list[int] | None) -> list[Event]:
        """Return the events that the parser holds back at a cut; a call with half a name is dropped."""
        begun = dict(self._calls)
        rest = self._parsed(choice, "", [], prompt_token_ids, finished=True)
        self._calls = begun
        return [
            event
            for event in rest
            if event.kind != "tool_call" and (event.kind != "tool_arguments" or event.call in begun)
        ]

    def _writes_json(self) -> bool:
        """Return whether arguments that the parser holds back are JSON of the model, not converted from tags."""
        engine = getattr(self.parser.tool_parser, "_parser_engine", None)
        return engine is not None and bool(engine.parser_engine_config.tool_args_json)

    def _pieces(self, part: CompletionOutput) -> list[tuple[str, list[int]]]:
        """Split an output into pieces of about one token, which parsers of calls in text handle better.

        A parser that reads tokens gets them in one piece, with their text.
        """
        text, token_ids = part.text, list(part.token_ids)
        parser, num_pieces = self.parser, len(part.token_ids)
        reads_tokens = parser.reasoning_parser is not None and not parser._stream_state.reasoning_ended
        if num_pieces < 2 or reads_tokens or parser.tool_parser is None or parser.tool_parser.engine_based_streaming:
            return [(text, token_ids)]
        ends = [len(text) * number // num_pieces for number in range(num_pieces + 1)]
        return [(text[ends[number] : ends[number + 1]], [token_id]) for number, token_id in enumerate(token_ids)]

    def _parsed(
        self, choice: int, text: str, token_ids: list[int], prompt_token_ids: list[int] | None, *, finished: bool
    ) -> list[Event]:
        tools, state = self.parser.tool_parser, self.parser._stream_state
        if tools is not None and state.reasoning_ended:
            text = without_end_markers(tools, state.previous_text, text)
        delta = self.parser.parse_delta(
            delta_text=text,
            delta_token_ids=token_ids,
            request=self._request,
            prompt_token_ids=prompt_token_ids,
            finished=finished,
        )
        events: list[Event] = []
        if delta is None:
            return events
        if delta.reasoning:
            events.append(ReasoningDelta("reasoning", choice, delta.reasoning))
        if delta.content:
            self._num_text += len(delta.content)
            events.append(TextDelta("text", choice, delta.content))
        for call in delta.tool_calls or ():
            events.extend(self._call(choice, call.index, call.id, call.function))
        return events

    def _call(self, choice: int, call: int, call_id: str | None, function: Any) -> list[Event]:
        if self._hides_calls or (call > 0 and self._request.parallel_tool_calls is False):
            return []
        events: list[Event] = []
        if call not in self._calls and function is not None and function.name:
            events += self._unread_input(choice)
            self._calls[call] = []
            is_custom = function.name in self._custom
            if is_custom:
                self._inputs[call] = TextMember(INPUT)
            # Some models read ids of their own format; only vLLM's general format becomes OpenAI's.
            call_id = (call_id or str(make_tool_call_id())).replace(_VLLMS_PREFIX, "call_", 1)
            events.append(ToolCallStart("tool_call", choice, call, call_id, function.name, is_custom))
        if function is not None and function.arguments and call in self._calls:
            self._calls[call].append(function.arguments)
            text = self._inputs[call].take(function.arguments) if call in self._inputs else function.arguments
            if text:
                events.append(ToolArgumentsDelta("tool_arguments", choice, call, text))
        return events

    def _unread_input(self, choice: int) -> list[Event]:
        """Return the arguments of the last call as they are, if its tool is custom and they hold no text as input.

        So a model that is not held to a form loses nothing of what it wrote.
        """
        last = max(self._calls, default=-1)
        arguments = "".join(self._calls.get(last, ()))
        if last not in self._inputs or self._inputs[last].text is not None or not _is_json(arguments):
            return []
        del self._inputs[last]
        return [ToolArgumentsDelta("tool_arguments", choice, last, arguments)]

    def _held_back(self, is_cut: bool) -> str:
        """Return text at the end of an answer that the parser held back as the possible start of a call.

        Engine-based parsers hold nothing back at the end.
        """
        tools = self.parser.tool_parser
        if self._calls or tools is None or self._request.tool_choice not in (None, "auto"):
            return ""
        state = self.parser._stream_state
        if tools.engine_based_streaming or not state.reasoning_ended:
            return ""
        text: str = state.previous_text[self._num_text :]
        marker = _marker_of(tools)
        if marker and marker in text:
            return ""
        if is_cut and (marker.startswith(text) or _BEGUN_CALL.fullmatch(text)):
            return ""
        return text


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def marks_calls(parser: Parser | None) -> bool:
    """Return whether a model marks its calls, so that other text cannot look like a call."""
    tools = None if parser is None else parser.tool_parser
    return tools is not None and (bool(tools.engine_based_streaming) or bool(_marker_of(tools)))


def _marker_of(tools: Any) -> str:
    """Return the text that starts a call; "" if the parser has none."""
    return getattr(tools, "tool_call_start_token", None) or getattr(tools, "bot_token", None) or ""
