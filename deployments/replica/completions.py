"""Legacy completions inside the replica, over vLLM's own serving class, with the output in OpenAI's format."""

import asyncio
from copy import copy
from typing import Any

import orjson
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.lora.request import LoRARequest

from deployments.channel.server import Reply
from deployments.models.contract.engine import Usage, payer_of
from deployments.models.contract.errors import EngineDied
from deployments.models.contract.render import DONE, usage_to_wire
from deployments.models.contract.steps import Written, pack_prompt, pack_step
from deployments.models.fill_in_middle import FillInMiddle
from deployments.replica.completion_clients import GatheringClient, SteppingClient
from deployments.replica.fill_in_middle import GappedPrompts, find_markers, no_markers
from deployments.replica.logprobs import has_end_token
from deployments.replica.refusals import check_prompt_logprobs, refusal_of, refused
from deployments.replica.runners import Adapters, RunnerContext, end_with, find_lora, model_named, summary_of
from deployments.replica.scheduling.preparing import Preparing
from deployments.replica.schemas.budget import SchemaCompiler
from deployments.replica.schemas.requested import forms_to_compile, held_to
from deployments.replica.structural_tags import move_tag

_LOGPROBS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


class CompletionRunner:
    """Runs legacy completions on one engine."""

    def __init__(
        self,
        serving: OpenAIServingCompletion,
        schemas: SchemaCompiler,
        preparing: Preparing,
        model_id: str,
        adapters: Adapters | None = None,
        fill_in_middle: FillInMiddle | None = None,
    ) -> None:
        self._adapters = adapters
        self._schemas = schemas
        self._serving = copy(serving)
        self._serving.render_completion_request = self._render
        self._render_at_once = serving.render_completion_request
        tokenizer = serving.renderer.tokenizer
        markers = find_markers(tokenizer, fill_in_middle)
        self._gapped = None if markers is None else GappedPrompts(tokenizer, serving.model_config, markers)
        self._preparing = preparing
        self._model_id = model_id

    async def _render(self, request: CompletionRequest) -> Any:
        async with self._preparing.turn(request.priority, payer_of(request.cache_salt)[0]):
            if not request.suffix:
                rendered = await self._render_at_once(request)
            elif self._gapped is None:
                raise no_markers(self._model_id)
            else:
                rendered = await self._gapped.render(request, self._render_at_once)
        if not isinstance(rendered, ErrorResponse):
            for engine_input in rendered:
                check_prompt_logprobs(request.prompt_logprobs, len(engine_input.get("prompt_token_ids") or ()))
        return rendered

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request, or raise an `EngineError`."""
        fields = orjson.loads(body)
        lora = await find_lora(self._adapters, header)
        account, _ = payer_of(header["cache_salt"])
        forms = forms_to_compile(fields)
        tried = [(form, await self._schemas.check(form, account)) for form in forms]
        options = fields.pop("stream_options", None) or {}
        with refused("prompt"), self._schemas.following(forms, account):
            request = self._parse(header, held_to(fields, tried))
            if not header["stream"]:
                await self._run_whole(request, header, reply, lora)
                return
            await self._run_stream(request, header, reply, options, lora)

    def _parse(self, header: dict[str, Any], fields: dict[str, Any]) -> CompletionRequest:
        move_tag(fields)
        fields["model"] = self._model_id
        fields["stream"] = header["stream"]
        fields["request_id"] = header["request_id"].removeprefix("req_")
        fields["cache_salt"] = header["cache_salt"] or None
        fields["priority"] = header["priority"]
        if header["stream"]:
            fields["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        for name in ("temperature", "top_p"):
            if fields.get(name) is None:
                fields[name] = 1.0
        if fields.get("max_tokens") is None:
            fields["max_tokens"] = 16  # OpenAI's default for this route.
        return CompletionRequest.model_validate(fields)

    async def _run_stream(
        self,
        request: CompletionRequest,
        header: dict[str, Any],
        reply: Reply,
        options: dict[str, Any],
        lora: LoRARequest | None,
    ) -> None:
        serving = copy(self._serving)
        written, num_choices = Written(header.get("written") or ()), request.n or 1
        serving.engine_client = client = SteppingClient(self._serving.engine_client, written, num_choices, lora)
        answer = await serving.create_completion(request)
        if isinstance(answer, ErrorResponse):
            raise refusal_of(answer, "prompt")
        shows_end = request.include_stop_str_in_output
        stream = _Stream(header, reply, client, num_choices, options, shows_end=shows_end)
        try:
            async for line in answer:
                stream.take(line, model_named(self._model_id, header))
        except asyncio.CancelledError:
            # The tokens of a client that left still count.
            reply.end(summary_of(stream.tally.usage, [], client.queued_s))
            raise
        stream.end()

    async def _run_whole(
        self, request: CompletionRequest, header: dict[str, Any], reply: Reply, lora: LoRARequest | None
    ) -> None:
        serving = copy(self._serving)
        serving.engine_client = client = GatheringClient(self._serving.engine_client, lora)
        task = asyncio.current_task()
        try:
            answer = await serving.create_completion(request)
            if task is not None and task.cancelling():  # vLLM returns an answer when the client has left.
                raise asyncio.CancelledError
        except asyncio.CancelledError:
            reply.end(summary_of(client.usage, [], client.queued_s))
            raise
        if isinstance(answer, ErrorResponse):
            raise refusal_of(answer, "prompt")
        body = answer.model_dump()
        usage = _usage(body["usage"])
        choices = [_choice(choice, shows_end=request.include_stop_str_in_output) for choice in body["choices"]]
        whole = orjson.dumps(
            {
                "id": body["id"],
                "object": "text_completion",
                "created": header.get("created") or body["created"],
                "model": model_named(self._model_id, header),
                "choices": choices,
                "usage": usage_to_wire(usage),
                "system_fingerprint": body.get("system_fingerprint"),
            }
        )
        summary = summary_of(usage, [choice["finish_reason"] for choice in choices], client.queued_s)
        end_with(reply, header, summary, whole)


def create_runner(context: RunnerContext) -> CompletionRunner | None:
    """Return the runner of completions; None if the model does not support them."""
    serving = context.find_serving("completion")
    if serving is None:
        return None
    own = context.model_id, context.adapters, context.fill_in_middle
    return CompletionRunner(serving, context.start_compiler(), context.preparing, *own)


class _Stream:
    """Passes the stream of vLLM's serving class for one request on to the reply."""

    def __init__(
        self,
        header: dict[str, Any],
        reply: Reply,
        client: SteppingClient,
        num_choices: int,
        options: dict[str, Any],
        *,
        shows_end: bool,
    ) -> None:
        self.tally = Tally(num_choices)
        self._reply = reply
        self._client = client
        self._num_choices = num_choices
        self._shows_end = shows_end
        self._include_usage = bool(options.get("include_usage"))
        self._counts = self._include_usage and bool(options.get("continuous_usage_stats"))
        self._header = header
        self._created = header.get("created")
        self._takes_notes = header.get("takes_notes", False)
        self._noted_prompts = set(client.prompts)
        self._usage = Usage()
        self._reasons: dict[int, str] = {}
        self._last = b""

    def take(self, line: str, model_id: str) -> None:
        """Take the next line; raises the engine's error, or EngineDied if that is unknown."""
        data = line.removeprefix("data: ").strip()
        if data == "[DONE]":
            self._last += DONE
            return
        parsed = orjson.loads(data)
        if "error" in parsed:
            raise self._client.error or EngineDied("The engine failed while it ran the request.")
        chunk = {
            "id": parsed["id"],
            "object": "text_completion",
            "created": self._created or parsed["created"],
            "model": model_id,
            "choices": [_choice(choice, shows_end=self._shows_end) for choice in parsed["choices"]],
            "system_fingerprint": parsed.get("system_fingerprint"),
        }
        if parsed.get("usage") is not None:
            self._usage = _usage(parsed["usage"])
        if chunk["choices"]:
            if self._include_usage:
                chunk["usage"] = parsed["usage"] if self._counts else None
            self._send(chunk)
        elif self._include_usage:
            self._count_cached()
            chunk["usage"] = usage_to_wire(self._usage)
            self._last = _event(chunk)

    def _send(self, chunk: dict[str, Any]) -> None:
        (choice,) = chunk["choices"]
        index = choice["index"]
        self.tally.note(index, self._usage)
        if choice["finish_reason"]:
            self._reasons[index] = choice["finish_reason"]
        tokens = self._client.next_chunk(index)
        if tokens.was_sent:
            return
        prompt = index // self._num_choices
        if self._takes_notes and prompt not in self._noted_prompts:
            self._noted_prompts.add(prompt)
            self._reply.write(b"", pack_prompt(prompt, self._client.prompts[prompt]))
        self._reply.write(_event(chunk), pack_step(index, tokens.token_ids) if self._takes_notes else b"")

    def _count_cached(self) -> None:
        """Count the cached tokens of the prompt whose answer began first, as vLLM does."""
        if self._client.prompts:
            self._usage.cached_tokens = next(iter(self._client.prompts.values())).num_cached

    def end(self) -> None:
        """Send the end of the answer and the summary."""
        self._count_cached()
        reasons = [self._reasons[index] for index in sorted(self._reasons)]
        summary = summary_of(self._usage, reasons, self._client.queued_s)
        end_with(self._reply, self._header, summary, self._last)


class Tally:
    """The usage of a stream so far; vLLM reports it for each choice with its prompt, and in total only at the end."""

    def __init__(self, choices_per_prompt: int) -> None:
        self._choices_per_prompt = choices_per_prompt
        self._seen: dict[int, Usage] = {}

    def note(self, index: int, usage: Usage) -> None:
        """Set the usage of one choice and its prompt."""
        self._seen[index] = usage

    @property
    def usage(self) -> Usage:
        """The total of all choices and prompts; each prompt counts once."""
        prompts = {index // self._choices_per_prompt: seen for index, seen in self._seen.items()}
        return Usage(
            sum(seen.prompt_tokens for seen in prompts.values()),
            sum(seen.completion_tokens for seen in self._seen.values()),
            sum(seen.cached_tokens for seen in prompts.values()),
        )


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def _choice(choice: dict[str, Any], *, shows_end: bool) -> dict[str, Any]:
    logprobs, reason = choice.get("logprobs"), choice.get("finish_reason")
    if logprobs is not None:
        num_shown = -1 if has_end_token(reason, choice.get("stop_reason")) and not shows_end else None
        logprobs = {name: (logprobs.get(name) or [])[:num_shown] for name in _LOGPROBS}
    shown = {name: choice[name] for name in ("token_ids", "prompt_token_ids") if choice.get(name) is not None}
    if choice.get("prompt_logprobs") is not None:
        shown["prompt_logprobs"] = [
            of_one and {str(token_id): logprob for token_id, logprob in of_one.items()}
            for of_one in choice["prompt_logprobs"]
        ]
    return {
        "text": choice.get("text", ""),
        "index": choice["index"],
        "logprobs": logprobs,
        "finish_reason": reason if reason in (None, "stop", "length") else "stop",
        **shown,
    }


def _usage(usage: dict[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details") or {}
    return Usage(usage["prompt_tokens"], usage.get("completion_tokens") or 0, details.get("cached_tokens") or 0)
