"""Chat completions inside the replica: a validated body becomes tokens, and tokens become rendered bytes.

vLLM's own classes render prompts and parse tools and reasoning, so every model that vLLM knows works.
Plain text never passes through them: it goes from the engine's output straight to the wire.
"""

import asyncio
import time
from typing import Any

import orjson
from vllm.entrypoints.openai.chat_completion.protocol import (
    ChatCompletionNamedToolChoiceParam,
    ChatCompletionRequest,
)
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.utils.api_utils import get_max_tokens
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.parser.abstract_parser import Parser
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM

from deployments.channel.server import Reply
from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import EngineDied
from deployments.models.contract.events import (
    Event,
    Finished,
    FinishReason,
    Logprobs,
    ReasoningDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStart,
)
from deployments.models.contract.render import ChatBody, ChatChunks, EventLines, Renderer
from deployments.models.contract.steps import PromptTokens, Written, pack_prompt, pack_step
from deployments.replica.refusals import refusal_of, refused
from deployments.replica.resume.written import WrittenTokens
from deployments.replica.runners import RunnerContext, end_with
from deployments.replica.scheduling.preparing import Preparing
from deployments.replica.schemas.budget import SchemaCompiler, schemas_to_compile
from deployments.replica.submit import generate


class ChatRunner:
    """Runs chat completions on one engine."""

    def __init__(
        self,
        engine: AsyncLLM,
        serving: OpenAIServingChat,
        schemas: SchemaCompiler,
        preparing: Preparing,
        model_id: str,
    ) -> None:
        self._engine = engine
        self._schemas = schemas
        self._serving = serving
        self._model_id = model_id
        self._preparing = preparing
        self._has_reasoning = bool(
            serving.online_renderer.parser and serving.online_renderer.parser.reasoning_parser_cls
        )

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request.

        Raises:
            EngineError: it does not run, or breaks off.
        """
        fields = orjson.loads(body)
        for param, schema in schemas_to_compile(fields):
            await self._schemas.check(schema, param)
        async with self._preparing.turn(header["priority"]):
            engine_input, params, answer = await self._prepare(header, fields, reply)
        written = answer.written.groups(0, len(answer.finish_reasons))
        with refused("messages"):
            try:
                await generate(
                    self._engine,
                    engine_input,
                    params,
                    header["request_id"],
                    answer.take,
                    priority=header["priority"],
                    written=WrittenTokens(written, answer.take_again) if written else None,
                    **answer.reasoning_arguments(),
                )
            except asyncio.CancelledError:
                answer.abandon()
                raise
        answer.end()

    async def _prepare(
        self, header: dict[str, Any], fields: dict[str, Any], reply: Reply
    ) -> tuple[dict[str, Any], SamplingParams, "ChatAnswer"]:
        """Return the engine's input and sampling parameters, and the answer that takes its outputs.

        Raises:
            EngineError: the engine will not run this request.
        """
        with refused("messages"):
            request = self._parse(header, fields)
            rendered = await self._serving.render_chat_request(request)
        if isinstance(rendered, ErrorResponse):
            raise refusal_of(rendered, "messages")
        ((engine_input,),) = (rendered[1],)
        prompt_token_ids = engine_input.get("prompt_token_ids") or []
        answer = self._answer(header, request, reply, prompt_token_ids)
        with refused("messages"):
            max_tokens = get_max_tokens(
                self._serving.model_config.max_model_len,
                request.max_completion_tokens if request.max_completion_tokens is not None else request.max_tokens,
                len(prompt_token_ids),
                self._serving.default_sampling_params,
            )
            return engine_input, request.to_sampling_params(max_tokens, self._serving.default_sampling_params), answer

    def _parse(self, header: dict[str, Any], fields: dict[str, Any]) -> ChatCompletionRequest:
        fields["model"] = self._model_id
        fields["stream"] = header["stream"]
        if not header["stream"]:
            fields.pop("stream_options", None)
        fields["cache_salt"] = header["cache_salt"] or None
        # The interface's defaults, where vLLM would take the model's own.
        if fields.get("temperature") is None:
            fields["temperature"] = 1.0
        if fields.get("top_p") is None:
            fields["top_p"] = 1.0
        return ChatCompletionRequest.model_validate(fields)

    def _answer(
        self, header: dict[str, Any], request: ChatCompletionRequest, reply: Reply, prompt_token_ids: list[int]
    ) -> "ChatAnswer":
        needs_parser = self._has_reasoning or (bool(request.tools) and request.tool_choice != "none")
        parsers: list[Parser] = []
        if needs_parser and self._serving.parser_cls is not None:
            kwargs = self._serving._effective_chat_template_kwargs(request)
            parsers = [
                self._serving.parser_cls(
                    self._serving.renderer.tokenizer,
                    request.tools,
                    chat_template_kwargs=kwargs,
                    model_config=self._serving.model_config,
                )
                for _ in range(request.n or 1)
            ]
        renderer = self._renderer(header, request)
        return ChatAnswer(self._serving, request, renderer, reply, parsers, prompt_token_ids, header)

    def _renderer(self, header: dict[str, Any], request: ChatCompletionRequest) -> Renderer:
        if header["render"] == "events":
            return EventLines()
        completion_id = "chatcmpl-" + header["request_id"].removeprefix("req_")
        created, fingerprint = header.get("created") or int(time.time()), self._serving.system_fingerprint
        if not header["stream"]:
            return ChatBody(completion_id, self._model_id, created, fingerprint=fingerprint)
        options = request.stream_options
        include_usage = bool(options and options.include_usage)
        return ChatChunks(completion_id, self._model_id, created, include_usage=include_usage, fingerprint=fingerprint)


def create_runner(context: RunnerContext) -> ChatRunner | None:
    """Return what runs chats on an engine, None where its model writes none."""
    serving = context.find_serving("chat")
    if serving is None:
        return None
    return ChatRunner(context.client, serving, context.start_compiler(), context.preparing, context.model_id)


class ChatAnswer:
    """The answer to one chat request while it is made: the engine's outputs go in, bytes go out.

    `usage` counts the tokens so far; `finish_reasons` has an entry for each choice, empty until it has ended.
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
    ) -> None:
        num_choices = request.n or 1
        self._serving = serving
        self._request = request
        self._renderer = renderer
        self._reply = reply
        self._parsers = parsers
        self._prompt_token_ids = prompt_token_ids
        self._is_plain = not parsers and not request.logprobs
        self._header = header
        self._sends_notes = header["stream"] and header.get("takes_notes", False)
        self.written = Written(header.get("written") or ())
        num_cached = self.written.prompts[0].num_cached if self.written.prompts else 0
        self.usage = Usage(prompt_tokens=len(prompt_token_ids), cached_tokens=num_cached)
        self.finish_reasons: list[str] = [""] * num_choices
        self._token_ids: list[list[int]] = [[] for _ in range(num_choices)]
        self._called: set[tuple[int, int]] = set()

    def reasoning_arguments(self) -> dict[str, Any]:
        """Return the engine's arguments about reasoning that the prompt may have begun already."""
        if not self._parsers or self._parsers[0].reasoning_parser is None:
            return {}
        kwargs = self._serving._effective_chat_template_kwargs(self._request)
        return {
            "reasoning_ended": self._parsers[0].is_reasoning_end(self._prompt_token_ids),
            "reasoning_parser_kwargs": {"chat_template_kwargs": kwargs},
        }

    def take(self, output: RequestOutput) -> None:
        """Take one output of the engine and send its new content."""
        usage = self.usage
        if not self.written.prompts:
            self._note_prompt(output)
        for part in output.outputs:
            usage.completion_tokens += len(part.token_ids)
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

    def _note_prompt(self, output: RequestOutput) -> None:
        """Count the prompt, of whose choices this is the first output."""
        usage = self.usage
        if output.prompt_token_ids is not None:
            usage.prompt_tokens = len(output.prompt_token_ids)
        usage.cached_tokens = min(output.num_cached_tokens or 0, usage.prompt_tokens)
        self.written.prompts[0] = PromptTokens(usage.prompt_tokens, usage.cached_tokens)
        if self._sends_notes:
            self._reply.write(b"", pack_prompt(0, self.written.prompts[0]))

    def take_again(self, part: CompletionOutput) -> None:
        """Take an output that another engine has sent before; it is not sent again."""
        self.usage.completion_tokens += len(part.token_ids)
        self._renderer.events(self._events(part, self._prompt_token_ids))

    def _events(self, part: CompletionOutput, prompt_token_ids: list[int] | None) -> list[Event]:
        if self._parsers:
            self._token_ids[part.index].extend(part.token_ids)
            events = self._streamed(part, prompt_token_ids) if self._request.stream else self._whole(part)
        else:
            events = [TextDelta("text", part.index, part.text)] if part.text or not self._request.stream else []
        if self._request.logprobs and part.logprobs is not None:
            events.append(self._logprobs(part))
        if part.finish_reason is not None:
            reason = self._reason(part)
            self.finish_reasons[part.index] = reason
            events.append(Finished("finished", part.index, reason))
        return events

    def _streamed(self, part: CompletionOutput, prompt_token_ids: list[int] | None) -> list[Event]:
        delta = self._parsers[part.index].parse_delta(
            delta_text=part.text,
            delta_token_ids=list(part.token_ids),
            request=self._request,
            prompt_token_ids=prompt_token_ids,
            finished=part.finish_reason is not None,
        )
        events: list[Event] = []
        if delta is None:
            return events
        if delta.reasoning:
            events.append(ReasoningDelta("reasoning", part.index, delta.reasoning))
        if delta.content:
            events.append(TextDelta("text", part.index, delta.content))
        for call in delta.tool_calls or ():
            events.extend(self._call(part.index, call.index, call.id, call.function))
        return events

    def _whole(self, part: CompletionOutput) -> list[Event]:
        reasoning, content, calls = self._parsers[part.index].parse(
            part.text, self._request, enable_auto_tools=True, model_output_token_ids=part.token_ids
        )
        events: list[Event] = []
        if reasoning:
            events.append(ReasoningDelta("reasoning", part.index, reasoning))
        if content:
            events.append(TextDelta("text", part.index, content))
        for number, call in enumerate(calls or ()):
            events.extend(self._call(part.index, number, call.id, call))
        return events

    def _call(self, choice: int, call: int, call_id: str | None, function: Any) -> list[Event]:
        if call > 0 and self._request.parallel_tool_calls is False:
            return []
        events: list[Event] = []
        if (choice, call) not in self._called and function is not None and function.name:
            self._called.add((choice, call))
            events.append(ToolCallStart("tool_call", choice, call, call_id or _new_call_id(), function.name))
        if function is not None and function.arguments:
            events.append(ToolArgumentsDelta("tool_arguments", choice, call, function.arguments))
        return events

    def _logprobs(self, part: CompletionOutput) -> Logprobs:
        shown = self._serving._create_chat_logprobs(
            token_ids=part.token_ids,
            top_logprobs=part.logprobs,
            tokenizer=self._serving.renderer.tokenizer,
            num_output_top_logprobs=self._request.top_logprobs,
        )
        return Logprobs("logprobs", part.index, [token.model_dump() for token in shown.content or ()])

    def _reason(self, part: CompletionOutput) -> FinishReason:
        if part.finish_reason == "error":
            raise EngineDied("The engine failed while it ran the request.")
        has_called = any(choice == part.index for choice, _ in self._called)
        is_named = isinstance(self._request.tool_choice, ChatCompletionNamedToolChoiceParam)
        if has_called and not is_named and part.finish_reason == "stop":
            return "tool_calls"
        return "length" if part.finish_reason == "length" else "stop"

    def end(self) -> None:
        """Send the end of the answer and the summary."""
        self._count_reasoning()
        end_with(self._reply, self._header, self._summary(), self._renderer.finish(self.usage))

    def abandon(self) -> None:
        """Send the summary of an answer whose client has left: its tokens still count."""
        self._count_reasoning()
        self._reply.end(self._summary())

    def _count_reasoning(self) -> None:
        self.usage.reasoning_tokens = sum(
            parser.count_reasoning_tokens(ids) for parser, ids in zip(self._parsers, self._token_ids, strict=False)
        )

    def _summary(self) -> dict[str, Any]:
        usage = self.usage
        return {
            "usage": [usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens],
            "finish_reasons": self.finish_reasons,
        }


def _new_call_id() -> str:
    from vllm.entrypoints.chat_utils import make_tool_call_id

    return str(make_tool_call_id())
