"""Chat completions inside the replica: a validated body becomes tokens, and tokens become rendered bytes.

vLLM's own classes render prompts, and parse tool calls and reasoning, so every model that vLLM knows works. Plain text
skips them: it goes from the engine's output straight to the client.
"""

import asyncio
import time
from collections.abc import Mapping
from copy import copy
from typing import Any

import orjson
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.utils.api_utils import get_max_tokens
from vllm.lora.request import LoRARequest
from vllm.outputs import RequestOutput
from vllm.parser.abstract_parser import Parser
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM

from deployments.channel.server import Reply
from deployments.models.contract.custom_tools import FIELD
from deployments.models.contract.engine import payer_of
from deployments.models.contract.errors import RequestRejected
from deployments.models.contract.render import ChatBody, ChatChunks, EventLines, Renderer
from deployments.replica.chat_answer import ChatAnswer
from deployments.replica.efforts import Efforts
from deployments.replica.logprobs import TokenBytes
from deployments.replica.refusals import check_prompt_logprobs, refusal_of, refused
from deployments.replica.resume.written import WrittenTokens
from deployments.replica.runners import Adapters, RunnerContext, find_lora, model_named
from deployments.replica.scheduling.preparing import Preparing
from deployments.replica.schemas.budget import SchemaCompiler
from deployments.replica.schemas.requested import forms_to_compile, held_to
from deployments.replica.structural_tags import (
    GRAMMAR,
    answer_of,
    calls_or_answer,
    has_either,
    hold_grammars,
    move_tag,
    on_lines,
)
from deployments.replica.submit import generate
from deployments.replica.tokenized import OWNER

_HARDLY = -20.0
"""The logarithm of a probability of one in half a billion."""


class ChatRunner:
    """Runs chat completions on one engine."""

    def __init__(
        self,
        engine: AsyncLLM,
        serving: OpenAIServingChat,
        schemas: SchemaCompiler,
        preparing: Preparing,
        model_id: str,
        adapters: Adapters | None = None,
        budgets: Mapping[str, int] | None = None,
    ) -> None:
        """`budgets` has the tokens of reasoning by effort."""
        self._engine = engine
        self._adapters = adapters
        self._schemas = schemas
        self._serving = serving
        # With `tool_choice: none` the model does not even know of the tools.
        serving.online_renderer.exclude_tools_when_tool_choice_none = True
        self._model_id = model_id
        self._preparing = preparing
        self._token_bytes = TokenBytes()
        self._has_reasoning = bool(serving.parser_cls and serving.parser_cls.reasoning_parser_cls)
        self._efforts = Efforts(engine.vllm_config, budgets or {})

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request, or raise an `EngineError`."""
        OWNER.set(header["cache_salt"])
        fields = orjson.loads(body)
        lora = await find_lora(self._adapters, header)
        account, _ = payer_of(header["cache_salt"])
        forms = forms_to_compile(fields, "functions" if header["render"] == "functions" else "tools")
        tried = [(form, await self._schemas.check(form, account)) for form in forms]
        held = held_to(fields, tried) if tried or FIELD in fields else None
        async with self._preparing.turn(header["priority"], account):
            engine_input, params, answer = await self._prepare(header, fields, held, reply)
        written = answer.written.groups(0, len(answer.finish_reasons))
        with refused("messages"), self._schemas.following(forms, account):
            try:
                if held is not None and has_either(held):
                    await self._leave_out_calls(header, engine_input, params, answer, lora)
                await generate(
                    self._engine,
                    engine_input,
                    params,
                    header["request_id"],
                    answer.take,
                    priority=header["priority"],
                    lora_request=lora,
                    written=WrittenTokens(written, answer.take_again) if written else None,
                    streamed=header["stream"],
                    **answer.reasoning_arguments(),
                )
            except asyncio.CancelledError:
                answer.abandon()
                raise
        answer.end()

    async def _leave_out_calls(
        self,
        header: dict[str, Any],
        engine_input: dict[str, Any],
        params: SamplingParams,
        answer: ChatAnswer,
        lora: LoRARequest | None,
    ) -> None:
        """Leave calls out of a grammar of calls or an answer, if the model is very unlikely to begin one.

        The grammar may forbid the text that the model wants to begin with. If all the rest is equally unlikely, a model
        would call tools by chance.
        """
        form, first = params.structured_outputs, answer.first_of_calls
        if first is None or form is None or form.structural_tag is None:
            return
        outputs: list[RequestOutput] = []
        look = SamplingParams(
            max_tokens=1,
            logprob_token_ids=[first],
            prompt_logprobs=params.prompt_logprobs,  # The answer takes the prompt's log probabilities from here.
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        params.prompt_logprobs = None
        await generate(
            self._engine,
            copy(engine_input),
            look,
            f"{header['request_id']}-first",
            outputs.append,
            priority=header["priority"],
            lora_request=lora,
        )
        answer.note_prompt(outputs[-1])  # Now: for the answer itself the prompt is in the cache.
        (logprobs,) = outputs[-1].outputs[0].logprobs
        if logprobs[first].logprob < _HARDLY:
            form.structural_tag = answer_of(form.structural_tag)

    async def _prepare(
        self, header: dict[str, Any], fields: dict[str, Any], held: dict[str, Any] | None, reply: Reply
    ) -> tuple[dict[str, Any], SamplingParams, ChatAnswer]:
        """Return the engine's input and sampling parameters, and the answer that takes its outputs.

        `held` is the body with rewritten schemas, None for a request without forms.
        """
        custom = fields.get(FIELD) or {}
        with refused("messages"):
            request = self._parse(header, fields)
            rendered = await self._serving.render_chat_request(request)
            if held is not None and not isinstance(rendered, ErrorResponse):
                self._hold(header, request, held)
                _hold_grammars(request, held)
        if isinstance(rendered, ErrorResponse):
            raise refusal_of(rendered, "messages")
        conversation, (engine_input,) = rendered
        prompt_token_ids = engine_input.get("prompt_token_ids") or []
        check_prompt_logprobs(request.prompt_logprobs, len(prompt_token_ids))
        renderer = self._renderer(header, request, engine_input)
        if request.logprobs:
            await self._token_bytes.load(self._serving.renderer.tokenizer)
        answer = ChatAnswer(
            self._serving,
            request,
            renderer,
            reply,
            self._parsers(request),
            prompt_token_ids,
            header,
            self._token_bytes,
            self._echo(request, conversation),
            custom,
        )
        with refused("messages"):
            max_tokens = get_max_tokens(
                self._serving.model_config.max_model_len,
                request.max_completion_tokens if request.max_completion_tokens is not None else request.max_tokens,
                len(prompt_token_ids),
                self._serving.default_sampling_params,
            )
            params = request.to_sampling_params(max_tokens, self._serving.default_sampling_params)
        if fields.get("thinking_token_budget") is None:
            params.thinking_token_budget = self._efforts.budget_of(request)
        answer.forbid_calls(params)
        if answer.takes_steps:
            params.output_kind = RequestOutputKind.DELTA
        return engine_input, params, answer

    def _hold(self, header: dict[str, Any], request: ChatCompletionRequest, held: dict[str, Any]) -> None:
        """Hold a rendered request to the rewritten schemas of `held`; its prompt keeps the client's schemas."""
        if has_either(held):
            calls = self._parse(header, {**held, "tool_choice": "required", "messages": []})
            answer = calls.extract_structured_outputs()
            calls.structured_outputs = calls.response_format = None
            form = self._guided(calls).structured_outputs
            if form is not None and form.structural_tag is not None:
                form.structural_tag = calls_or_answer(answer, on_lines(form.structural_tag))
                request.structured_outputs, request.response_format = form, None
                return
        stand_in = self._guided(self._parse(header, {**held, "messages": []}))
        form = request.structured_outputs = stand_in.structured_outputs
        is_forced = held.get("tool_choice") not in (None, "auto", "none")
        if is_forced and form is not None and form.structural_tag is not None:
            form.structural_tag = on_lines(form.structural_tag)
        request.response_format = stand_in.response_format

    def _guided(self, request: ChatCompletionRequest) -> ChatCompletionRequest:
        """Return a request with the grammar that vLLM creates for its tools when it renders."""
        return request if self._serving.parser_cls is None else self._parser(request).adjust_request(request=request)

    def _parser(self, request: ChatCompletionRequest) -> Parser:
        return self._serving.parser_cls(
            self._serving.renderer.tokenizer,
            request.tools,
            chat_template_kwargs=self._serving._effective_chat_template_kwargs(request),
            model_config=self._serving.model_config,
        )

    def _parse(self, header: dict[str, Any], fields: dict[str, Any]) -> ChatCompletionRequest:
        move_tag(fields)
        self._efforts.name(fields)
        fields.pop(FIELD, None)
        fields["model"] = self._model_id
        fields["stream"] = header["stream"]
        if not header["stream"]:
            fields.pop("stream_options", None)
        fields["cache_salt"] = header["cache_salt"] or None
        # OpenAI's defaults; vLLM would take the model's.
        if fields.get("temperature") is None:
            fields["temperature"] = 1.0
        if fields.get("top_p") is None:
            fields["top_p"] = 1.0
        if fields.get("continue_final_message"):
            fields["add_generation_prompt"] = False
        return ChatCompletionRequest.model_validate(fields)

    def _echo(self, request: ChatCompletionRequest, conversation: list[Any]) -> str:
        """Return the text of the last message, if the answer must begin with it; "" otherwise."""
        last = conversation[-1] if conversation else {}
        if not request.echo or last.get("role") != self._serving.get_chat_request_role(request):
            return ""
        content = last.get("content") or ""
        return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)

    def _parsers(self, request: ChatCompletionRequest) -> list[Parser]:
        """Return a parser for each choice; none if there are neither tools nor reasoning."""
        if self._serving.parser_cls is None or not (self._has_reasoning or request.tools):
            return []
        parsers = [self._parser(request) for _ in range(request.n or 1)]
        if not request.tools:  # Text that looks like a call is text.
            for parser in parsers:
                parser._tool_parser = None
        return parsers

    def _renderer(
        self, header: dict[str, Any], request: ChatCompletionRequest, engine_input: dict[str, Any]
    ) -> Renderer:
        if header["render"] == "events":
            return EventLines()
        completion_id = "chatcmpl-" + header["request_id"].removeprefix("req_")
        head = completion_id, model_named(self._model_id, header), header.get("created") or int(time.time())
        shown: dict[str, Any] = {}
        if request.return_token_ids:
            shown["prompt_token_ids"] = engine_input.get("prompt_token_ids")
        if request.return_prompt_text:
            shown["prompt_text"] = engine_input.get("prompt")
        shared: Any = {
            "fingerprint": self._serving.system_fingerprint,
            "service_tier": header.get("service_tier", "default"),
            "shown": shown,
            "has_functions": header["render"] == "functions",
        }
        if not header["stream"]:
            return ChatBody(*head, **shared)
        options = request.stream_options
        return ChatChunks(*head, include_usage=bool(options and options.include_usage), **shared)


def _hold_grammars(request: ChatCompletionRequest, held: dict[str, Any]) -> None:
    """Put the grammars of custom tools into the form of the answer. Raises RequestRejected if one has no place."""
    positions = {
        tool["function"]["parameters"][GRAMMAR]: index
        for index, tool in enumerate(held.get("tools") or ())
        if GRAMMAR in (tool["function"].get("parameters") or ())
    }
    missing = hold_grammars(request.structured_outputs, positions)
    if missing is not None:
        raise RequestRejected(
            "Unsupported value: this model writes calls in a form that cannot be held to a grammar. Use another model, "
            "or leave 'format' out and describe the input in 'description'.",
            f"tools[{positions[missing]}].custom.format.type",
            "unsupported_value",
        )


def create_runner(context: RunnerContext) -> ChatRunner | None:
    """Return the runner of chats; None if the model does not support them."""
    serving = context.find_serving("chat")
    if serving is None:
        return None
    return ChatRunner(
        context.client,
        serving,
        context.start_compiler(),
        context.preparing,
        context.model_id,
        context.adapters,
        context.budgets,
    )
