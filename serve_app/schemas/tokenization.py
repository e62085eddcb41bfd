"""The bodies of POST /v1/tokenize and /v1/detokenize, and their answers, as vLLM has them."""

from typing import Any, ClassVar, NotRequired, Self

import orjson
from pydantic import model_validator
from typing_extensions import TypedDict

from deployments.models.contract.custom_tools import FIELD as CUSTOM_TOOLS
from serve_app.schemas.base import (
    Effort,
    ModelId,
    OperationRequest,
    Refused,
    User,
    check_unsupported,
    estimate_tokens,
    refusal,
)
from serve_app.schemas.chat_dialect import TemplateArguments, check_prompt_end, rewrite
from serve_app.schemas.inputs import Tokens
from serve_app.schemas.messages import Messages, check_conversation, num_images, texts_of
from serve_app.schemas.tools import ChatFunctionTool, Tools, check_custom_tools, check_parameters, estimate_tools

_CHAT_FIELDS = ("tools", "add_generation_prompt", "continue_final_message", "chat_template_kwargs", "reasoning_effort")
_UNSUPPORTED = ("chat_template", "media_io_kwargs", "mm_processor_kwargs")


class TokenizeRequest(OperationRequest):
    """A chat or a plain text to be tokenized.

    Args:
        prompt: a plain text to tokenize. Send either this or `messages`.
        messages: a conversation to tokenize with the model's chat template.
        tools: functions that the chat template shows to the model.
        add_special_tokens: whether the tokenizer adds its special tokens.
        add_generation_prompt: whether the prompt ends by asking for an answer.
        continue_final_message: leaves the last message open, so that it can be continued.
        chat_template_kwargs: arguments of the model's chat template.
        return_token_strs: also returns each token as text.
    """

    example: ClassVar[dict[str, Any]] = {"model": "manta/demo-chat", "prompt": "Hello, world."}

    model: ModelId
    prompt: str | None = None
    messages: Messages | None = None
    tools: Tools | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = False
    chat_template_kwargs: TemplateArguments | None = None
    reasoning_effort: Effort | None = None
    return_token_strs: bool | None = False
    user: User | None = None

    # Known, and refused when set: templates are programs, and the others load what a chat here cannot hold.
    chat_template: Refused = None
    media_io_kwargs: Refused = None
    mm_processor_kwargs: Refused = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_unsupported(self, _UNSUPPORTED, "by this service")
        if (self.prompt is None) == (self.messages is None):
            raise refusal(
                "missing_required_parameter" if self.prompt is None else "invalid_parameter_combination",
                "Give either 'prompt', a text, or 'messages', a chat.",
                "messages",
            )
        if self.messages is None:
            self._check_plain()
            return self
        check_conversation(self.messages)
        check_custom_tools(self.tools)
        check_prompt_end(self.continue_final_message, self.add_generation_prompt)
        for index, tool in enumerate(self.tools or ()):
            if isinstance(tool, ChatFunctionTool):
                check_parameters(tool.function.parameters, f"tools[{index}].function.parameters", is_compiled=False)
        return self

    def _check_plain(self) -> None:
        for name in _CHAT_FIELDS:
            if getattr(self, name):
                raise refusal(
                    "invalid_parameter_combination", "The '{param}' parameter is only allowed with 'messages'.", name
                )

    @property
    def has_images(self) -> bool:
        """Whether the model must be able to see."""
        return any(map(num_images, self.messages or ()))

    def estimate_tokens(self) -> int:
        """Return about how many tokens the texts and the tools have."""
        if self.messages is None:
            return estimate_tokens([self.prompt or ""])
        texts = (text for message in self.messages for text in texts_of(message))
        return estimate_tokens(texts) + estimate_tools(self.tools)

    def to_engine_body(self, raw: bytes) -> bytes:
        """Return the body in the engine's dialect; `raw` are the bytes that this was parsed from."""
        if self.messages is None:
            return raw
        body = orjson.loads(rewrite(raw, has_developer_role=False))
        body.pop(CUSTOM_TOOLS, None)
        if self.continue_final_message:
            body["add_generation_prompt"] = False
        if self.reasoning_effort is not None:  # A chat sets these two for its template.
            thinks = {"reasoning_effort": self.reasoning_effort, "enable_thinking": self.reasoning_effort != "none"}
            body["chat_template_kwargs"] = {**thinks, **(self.chat_template_kwargs or {})}
        return orjson.dumps(body)


class DetokenizeRequest(OperationRequest):
    """Tokens to be turned into text.

    Args:
        tokens: the tokens to turn into text.
    """

    example: ClassVar[dict[str, Any]] = {"model": "manta/demo-chat", "tokens": [72, 105]}

    model: ModelId
    tokens: Tokens
    user: User | None = None

    def to_engine_body(self, raw: bytes) -> bytes:
        """Return the bytes that this was parsed from."""
        return raw


class TokenList(TypedDict):
    """The tokens of a text, their number, and the model's context size in tokens.

    `token_strs`, the tokens as the tokenizer writes them, is null unless `return_token_strs` was set.
    """

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: NotRequired[list[str] | None]


class DetokenizedText(TypedDict):
    """The text of tokens."""

    prompt: str
