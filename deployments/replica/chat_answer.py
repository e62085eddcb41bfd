"""The answer to one chat: vLLM's outputs go in, rendered bytes go out.

Answers with tools or reasoning pass through vLLM's parsers; plain text goes from the engine's output straight to the
client. `chat` creates one `ChatAnswer` for each request.
"""

from collections.abc import Collection
from typing import Any

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionNamedToolChoiceParam, ChatCompletionRequest
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.parser.abstract_parser import Parser
from vllm.sampling_params import SamplingParams

from deployments.channel.server import Reply
from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import EngineDied
from deployments.models.contract.events import Event, Finished, FinishReason, Logprobs, TextDelta, TokenIds
from deployments.models.contract.render import ChatBody, ChatChunks, Renderer
from deployments.models.contract.steps import PromptTokens, Written, pack_prompt, pack_step
from deployments.replica.calls import ChoiceParser
from deployments.replica.logprobs import TokenBytes, chat_logprobs, prompt_logprobs_to_wire
from deployments.replica.runners import end_with, summary_of
from deployments.replica.submit import queued_s_of


class ChatAnswer:
    """The answer to one chat request while it is generated.

    `echo` is text of the prompt that each choice starts with, `custom` has the names of custom tools. `usage` counts
    the tokens so far; `finish_reasons` has an entry for each choice, empty until the choice has ended.
    """

    def __init__(
        self,
        serving: OpenAIServingChat,
        request: ChatCompletionRequest,
        renderer: Renderer,
        reply: Reply,
        parsers: list[Parser],
        prompt_token_ids: list[int],
        header: dict[str, Any],
        token_bytes: TokenBytes,
        echo: str = "",
        custom: Collection[str] = (),
    ) -> None:
        num_choices = request.n or 1
        self._token_bytes = token_bytes
        self._serving = serving
        self._request = request
        self._renderer = renderer
        self._reply = reply
        self._parsers = [ChoiceParser(parser, request, custom) for parser in parsers]
        self._prompt_token_ids = prompt_token_ids
        self._echo = echo
        self._echoed: set[int] = set()
        self._shows_metadata = request.include_reasoning or not parsers  # Tokens would reveal the reasoning.
        self._shows_tokens = bool(request.return_token_ids) and self._shows_metadata
        self._is_plain = not (parsers or request.logprobs or self._shows_tokens or echo)
        options = request.stream_options
        self._counts = bool(options and options.include_usage and options.continuous_usage_stats)
        self._num_tokens = [0] * num_choices
        self._header = header
        self._sends_notes = header["stream"] and header.get("takes_notes", False)
        self.written = Written(header.get("written") or ())
        num_cached = self.written.prompts[0].num_cached if self.written.prompts else 0
        self.usage = Usage(prompt_tokens=len(prompt_token_ids), cached_tokens=num_cached)
        self.finish_reasons: list[str] = [""] * num_choices
        self._queued_s: float | None = None
        self._token_ids: list[list[int]] = [[] for _ in range(num_choices)]

    @property
    def takes_steps(self) -> bool:
        """Whether the answer needs every step of the engine, even if it is not streamed."""
        return bool(self._parsers)

    @property
    def first_of_calls(self) -> int | None:
        """The token that starts calls in this answer; None if they start with several tokens or with reasoning."""
        if not self._parsers or not self.reasoning_arguments().get("reasoning_ended", True):
            return None
        return self._parsers[0].marker

    def forbid_calls(self, params: SamplingParams) -> None:
        """Keep the model from calling tools, if the request forbids it."""
        if self._parsers:
            self._parsers[0].forbid_calls(params)

    def reasoning_arguments(self) -> dict[str, Any]:
        """Return the engine's arguments about reasoning, which the prompt may have begun."""
        if not self._parsers or self._parsers[0].parser.reasoning_parser is None:
            return {}
        kwargs = self._serving._effective_chat_template_kwargs(self._request)
        return {
            "reasoning_ended": self._parsers[0].parser.is_reasoning_end(self._prompt_token_ids),
            "reasoning_parser_kwargs": {"chat_template_kwargs": kwargs},
        }

    def take(self, output: RequestOutput) -> None:
        """Take one output of the engine and send its new content."""
        self.note_prompt(output)
        for part in output.outputs:
            self._count(part)
            if self._is_plain and part.finish_reason is None:
                piece = self._renderer.text(part.index, part.text) if part.text else b""
            elif not self.finish_reasons[part.index]:
                piece = self._renderer.events(self._events(part, output.prompt_token_ids))
            else:
                continue
            if self._sends_notes and part.token_ids:
                self._reply.write(piece, pack_step(part.index, part.token_ids))
            elif piece:
                self._reply.write(piece)

    def note_prompt(self, output: RequestOutput) -> None:
        """Count the prompt and its waiting time, from the first output of the request."""
        if self.written.prompts:
            return
        if self._queued_s is None:
            self._queued_s = queued_s_of(output)
        usage = self.usage
        if output.prompt_token_ids is not None:
            usage.prompt_tokens = len(output.prompt_token_ids)
        if output.prompt_logprobs is not None and isinstance(self._renderer, ChatBody):
            self._renderer.shown["prompt_logprobs"] = prompt_logprobs_to_wire(output.prompt_logprobs)
        usage.cached_tokens = min(output.num_cached_tokens or 0, usage.prompt_tokens)
        self.written.prompts[0] = PromptTokens(usage.prompt_tokens, usage.cached_tokens)
        if self._sends_notes:
            self._reply.write(b"", pack_prompt(0, self.written.prompts[0]))

    def take_again(self, part: CompletionOutput) -> None:
        """Take an output that another engine has sent already, without sending it again."""
        self._count(part)
        self._renderer.events(self._events(part, self._prompt_token_ids))

    def _count(self, part: CompletionOutput) -> None:
        self.usage.completion_tokens += len(part.token_ids)
        if self._counts and isinstance(self._renderer, ChatChunks):
            self._num_tokens[part.index] += len(part.token_ids)
            self._renderer.count(self.usage.prompt_tokens, self._num_tokens[part.index])

    def _events(self, part: CompletionOutput, prompt_token_ids: list[int] | None) -> list[Event]:
        if self._parsers:
            self._token_ids[part.index].extend(part.token_ids)
            events: list[Event] = self._parsers[part.index].parse(part, prompt_token_ids)
        else:
            events = [TextDelta("text", part.index, part.text)] if part.text or not self._request.stream else []
        if self._echo and part.index not in self._echoed:
            self._echoed.add(part.index)
            events.insert(0, TextDelta("text", part.index, self._echo))
        if self._request.logprobs and self._shows_metadata and part.logprobs is not None:
            content = chat_logprobs(part, self._request, self._serving.renderer.tokenizer, self._token_bytes)
            events.append(Logprobs("logprobs", part.index, content))
        if self._shows_tokens and part.token_ids:
            events.append(TokenIds("token_ids", part.index, list(part.token_ids)))
        if part.finish_reason is not None:
            reason = self._reason(part)
            self.finish_reasons[part.index] = reason
            stop = part.stop_reason if isinstance(part.stop_reason, str) and reason == "stop" else None
            events.append(Finished("finished", part.index, reason, stop))
        return events

    def _reason(self, part: CompletionOutput) -> FinishReason:
        if part.finish_reason == "error":
            raise EngineDied("The engine failed while it ran the request.")
        is_named = isinstance(self._request.tool_choice, ChatCompletionNamedToolChoiceParam)
        calls = self._parsers[part.index] if self._parsers and not is_named else None
        if calls is not None and calls.has_called and part.finish_reason == "stop":
            is_cut = isinstance(part.stop_reason, str) and calls.has_broken_off
            return "stop" if is_cut else "tool_calls"
        return "length" if part.finish_reason == "length" else "stop"

    def end(self) -> None:
        """Send the end of the answer and the summary."""
        self._count_reasoning()
        end_with(self._reply, self._header, self._summary(), self._renderer.finish(self.usage))

    def abandon(self) -> None:
        """Send the summary after the client has left: the tokens still count."""
        self._count_reasoning()
        self._reply.end(self._summary())

    def _count_reasoning(self) -> None:
        counted = zip(self._parsers, self._token_ids, strict=False)
        self.usage.reasoning_tokens = sum(choice.parser.count_reasoning_tokens(ids) for choice, ids in counted)

    def _summary(self) -> dict[str, Any]:
        return summary_of(self.usage, self.finish_reasons, self._queued_s)
