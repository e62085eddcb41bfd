"""Legacy completions inside the replica, over vLLM's own serving class, whose output is put in OpenAI's shape."""

import asyncio
from copy import copy
from typing import Any

import orjson
from vllm.entrypoints.openai.completion.protocol import CompletionRequest, CompletionResponse
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.entrypoints.serve.engine.protocol import ErrorResponse

from deployments.channel.server import Reply
from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import EngineDied
from deployments.models.contract.render import DONE, usage_to_wire
from deployments.replica.gather import GatheringClient
from deployments.replica.refusals import refusal_of, refused
from deployments.replica.runners import RunnerContext
from deployments.replica.scheduling.preparing import Preparing


class CompletionRunner:
    """Runs legacy completions on one engine."""

    def __init__(self, serving: OpenAIServingCompletion, preparing: Preparing, model_id: str) -> None:
        self._serving = copy(serving)
        self._serving.render_completion_request = self._render
        self._render_at_once = serving.render_completion_request
        self._preparing = preparing
        self._model_id = model_id

    async def _render(self, request: CompletionRequest) -> Any:
        """Return what vLLM renders, when it is the request's turn."""
        async with self._preparing.turn(request.priority):
            return await self._render_at_once(request)

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request.

        Raises:
            EngineError: it does not run, or breaks off.
        """
        fields = orjson.loads(body)
        options = fields.pop("stream_options", None) or {}
        fields["model"] = self._model_id
        fields["stream"] = header["stream"]
        fields["request_id"] = header["request_id"].removeprefix("req_")
        fields["cache_salt"] = header["cache_salt"] or None
        if header["priority"]:
            fields["priority"] = header["priority"]
        if header["stream"]:
            fields["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        for name in ("temperature", "top_p"):
            if fields.get(name) is None:
                fields[name] = 1.0
        if fields.get("max_tokens") is None:
            fields["max_tokens"] = 16  # OpenAI's default for this route.
        with refused("prompt"):
            request = CompletionRequest.model_validate(fields)
            if not header["stream"]:
                await self._run_whole(request, reply)
                return
            answer = await self._serving.create_completion(request)
            if isinstance(answer, ErrorResponse):
                raise refusal_of(answer, "prompt")
            tally = Tally(fields.get("n") or 1)
            try:
                await self._send_chunks(answer, reply, tally, include_usage=bool(options.get("include_usage")))
            except asyncio.CancelledError:
                reply.end(_summary(tally.usage, []))  # The tokens of a client that left still count.
                raise

    async def _run_whole(self, request: CompletionRequest, reply: Reply) -> None:
        serving = copy(self._serving)
        serving.engine_client = gathering = GatheringClient(self._serving.engine_client)
        task = asyncio.current_task()
        try:
            answer = await serving.create_completion(request)
            if task is not None and task.cancelling():  # vLLM makes an answer of it that the client has gone.
                raise asyncio.CancelledError
        except asyncio.CancelledError:
            reply.end(_summary(gathering.usage, []))
            raise
        if isinstance(answer, ErrorResponse):
            raise refusal_of(answer, "prompt")
        self._send_whole(answer, reply)

    def _send_whole(self, answer: CompletionResponse, reply: Reply) -> None:
        body = answer.model_dump()
        usage = _usage(body["usage"])
        choices = [_choice(choice) for choice in body["choices"]]
        reply.write(
            orjson.dumps(
                {
                    "id": body["id"],
                    "object": "text_completion",
                    "created": body["created"],
                    "model": self._model_id,
                    "choices": choices,
                    "usage": usage_to_wire(usage),
                    "system_fingerprint": body.get("system_fingerprint"),
                }
            )
        )
        reply.end(_summary(usage, [choice["finish_reason"] for choice in choices]))

    async def _send_chunks(self, answer: Any, reply: Reply, tally: "Tally", *, include_usage: bool) -> None:
        usage = Usage()
        reasons: dict[int, str] = {}
        async for line in answer:
            data = line.removeprefix("data: ").strip()
            if data == "[DONE]":
                break
            parsed = orjson.loads(data)
            if "error" in parsed:
                raise EngineDied("The engine failed while it ran the request.")
            chunk = {
                "id": parsed["id"],
                "object": "text_completion",
                "created": parsed["created"],
                "model": self._model_id,
                "choices": [_choice(choice) for choice in parsed["choices"]],
                "system_fingerprint": parsed.get("system_fingerprint"),
            }
            if parsed.get("usage") is not None:
                usage = _usage(parsed["usage"])
            for choice in chunk["choices"]:
                tally.note(choice["index"], usage)
                if choice["finish_reason"]:
                    reasons[choice["index"]] = choice["finish_reason"]
            if chunk["choices"]:
                if include_usage:
                    chunk["usage"] = None
            elif include_usage:
                chunk["usage"] = usage_to_wire(usage)
            else:
                continue
            reply.write(b"data: " + orjson.dumps(chunk) + b"\n\n")
        reply.write(DONE)
        reply.end(_summary(usage, [reasons[index] for index in sorted(reasons)]))


def create_runner(context: RunnerContext) -> CompletionRunner | None:
    """Return what runs completions on an engine, None where its model writes none."""
    serving = context.find_serving("completion")
    return None if serving is None else CompletionRunner(serving, context.preparing, context.model_id)


class Tally:
    """The usage of a stream so far: vLLM reports it per choice with its prompt, and in total only at the end."""

    def __init__(self, choices_per_prompt: int) -> None:
        self._choices_per_prompt = choices_per_prompt
        self._seen: dict[int, Usage] = {}

    def note(self, index: int, usage: Usage) -> None:
        """Set the usage of one choice and its prompt."""
        self._seen[index] = usage

    @property
    def usage(self) -> Usage:
        """The total of all choices and prompts, each prompt counted once."""
        prompts = {index // self._choices_per_prompt: seen for index, seen in self._seen.items()}
        return Usage(
            sum(seen.prompt_tokens for seen in prompts.values()),
            sum(seen.completion_tokens for seen in self._seen.values()),
            sum(seen.cached_tokens for seen in prompts.values()),
        )


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    logprobs = choice.get("logprobs")
    if logprobs is not None:
        logprobs = {name: logprobs.get(name) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
    reason = choice.get("finish_reason")
    return {
        "text": choice.get("text", ""),
        "index": choice["index"],
        "logprobs": logprobs,
        "finish_reason": reason if reason in (None, "stop", "length") else "stop",
    }


def _usage(usage: dict[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details") or {}
    return Usage(usage["prompt_tokens"], usage.get("completion_tokens") or 0, details.get("cached_tokens") or 0)


def _summary(usage: Usage, finish_reasons: list[str]) -> dict[str, Any]:
    return {
        "usage": [usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens],
        "finish_reasons": finish_reasons,
    }
