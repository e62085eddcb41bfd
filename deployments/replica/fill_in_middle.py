"""Prompts with a gap: the text before it and the text after it, each behind a marker that the model was trained with.

Both texts are a client's, so a marker in them is text: they are tokenized apart, and the markers are put around them as
tokens.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any, Final

from vllm.entrypoints.openai.completion.protocol import CompletionRequest

from deployments.models.contract.errors import RequestRejected
from deployments.models.fill_in_middle import FillInMiddle
from deployments.replica.renderers import SHORT

_FAMILIES: Final = (
    FillInMiddle(prefix="<|fim_prefix|>", suffix="<|fim_suffix|>", middle="<|fim_middle|>"),  # Qwen, CodeGemma, Granite
    FillInMiddle(prefix="<fim_prefix>", suffix="<fim_suffix>", middle="<fim_middle>"),  # StarCoder
    FillInMiddle(prefix="<｜fim▁begin｜>", suffix="<｜fim▁hole｜>", middle="<｜fim▁end｜>"),  # noqa: RUF001  # DeepSeek
    FillInMiddle(prefix="▁<PRE>", suffix="▁<SUF>", middle="▁<MID>", end="▁<EOT>"),  # CodeLlama
    FillInMiddle(prefix="[PREFIX]", suffix="[SUFFIX]", order="spm"),  # Codestral
)
_SMILE: Final = "☺"
"""What vocabularies hardly ever merge with what follows."""


def find_markers(tokenizer: Any, configured: FillInMiddle | None) -> FillInMiddle | None:
    """Return a model's markers: those that are configured, or those of a known family; None if it has none.

    Raises:
        ValueError: a configured marker is not a token of the model.
    """
    vocabulary = tokenizer.get_vocab()
    if configured is None:
        return next((family for family in _FAMILIES if not family.tokens - vocabulary.keys()), None)
    if unknown := configured.tokens - vocabulary.keys():
        raise ValueError(f"fill_in_middle: {', '.join(sorted(unknown))} should each be one token of the model")
    return configured


def no_markers(model_id: str) -> RequestRejected:
    """Return the refusal of a suffix by a model without markers."""
    return RequestRejected(
        f"Unsupported parameter: 'suffix' is not supported with `{model_id}`, which has no tokens that mark a gap. "
        "Leave it out, or choose a model for code; the operator can name the tokens in the model's setting "
        "'fill_in_middle'.",
        "suffix",
        "unsupported_parameter",
    )


class GappedPrompts:
    """Renders the prompts of completions with a `suffix`, with the markers `form` of a model."""

    def __init__(self, tokenizer: Any, model_config: Any, form: FillInMiddle) -> None:
        self._tokenizer = tokenizer
        self._model_config = model_config
        self._form = form
        vocabulary = tokenizer.get_vocab()
        self._ids: dict[str, int] = {name: vocabulary[name] for name in form.tokens}
        self._markers = frozenset(self._ids.values())
        first = tokenizer.encode("")[:1]
        self._begin = first if first == [tokenizer.bos_token_id] else []

    async def render(self, request: CompletionRequest, render: Callable[[CompletionRequest], Any]) -> Any:
        """Return the engine's inputs for a request, or vLLM's own refusal, as `render`, vLLM's own renderer, does.

        The request gets the token that ends the middle as one more to stop at.

        Raises:
            RequestRejected: the tokenizer cannot read a marker in a text as text.
            VLLMValidationError: a prompt with the suffix is longer than the context.
        """
        texts, suffix = [request.prompt] if isinstance(request.prompt, str) else request.prompt, request.suffix
        params = request.build_tok_params(self._model_config)
        for text in texts:
            params.apply_pre_tokenization(self._tokenizer, {"prompt": text + suffix})  # Refuses one that is too long.
        # The options of every prompt: a tokenizer must not be given others while another thread uses it.
        reader = _Reader(self._tokenizer, {**params.get_encode_kwargs(), "add_special_tokens": False}, self._markers)
        is_short = len(suffix) + sum(map(len, texts)) <= SHORT
        work = partial(self._prompts, reader, texts, suffix)
        prompts = work() if is_short else await asyncio.to_thread(work)
        if self._form.end:
            request.stop_token_ids = [*(request.stop_token_ids or ()), self._ids[self._form.end]]
        rendered = await render(request.model_copy(update={"prompt": prompts, "suffix": None}))
        if isinstance(rendered, list):
            for engine_input, text in zip(rendered, texts, strict=True):
                engine_input["prompt"] = text  # What `echo` shows.
        return rendered

    def _prompts(self, reader: "_Reader", texts: Iterable[str], suffix: str) -> list[list[int]]:
        after = reader.read(suffix, "suffix", begins=False)
        return [self._prompt(reader.read(text, "prompt"), after) for text in texts]

    def _prompt(self, before: list[int], after: list[int]) -> list[int]:
        form = self._form
        parts = [(form.prefix, before), (form.suffix, after)]
        if form.order == "spm":
            parts.reverse()
        marked = [token for marker, tokens in parts for token in (self._ids[marker], *tokens)]
        return [*self._begin, *marked, *([self._ids[form.middle]] if form.middle else ())]


class _Reader:
    """Reads texts as tokens with the `options` of a tokenizer, and the `markers` in them as text."""

    def __init__(self, tokenizer: Any, options: dict[str, Any], markers: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._options = options
        self._markers = markers

    def read(self, text: str, param: str, *, begins: bool = True) -> list[int]:
        """Return the tokens of a text; one that `begins` has the space before it that some tokenizers put there.

        Raises:
            RequestRejected: a marker in the text can only be read as one; `param` has the text.
        """
        tokens = self._parts([text])[0] if begins else self._rest([text])
        if not self._markers.isdisjoint(tokens):
            first, *others = self._cut(text)
            tokens = [*(self._parts([first])[0] if begins else self._rest([first])), *self._rest(others)]
        if not self._markers.isdisjoint(tokens):
            raise RequestRejected(
                f"Invalid '{param}': it has one of the tokens that mark a gap, which this model can only read as a "
                "mark. Leave it out.",
                param,
                "invalid_value",
            )
        return tokens

    def _parts(self, texts: list[str]) -> list[list[int]]:
        tokens: list[list[int]] = self._tokenizer(texts, **self._options)["input_ids"]
        return tokens

    def _rest(self, texts: list[str]) -> list[int]:
        """Return the tokens of texts that follow others, where a tokenizer must not begin with a space."""
        smile, *parts = self._parts([_SMILE, *(_SMILE + text for text in texts)])
        tokens = []
        for text, part in zip(texts, parts, strict=True):
            if len(part) >= self._options["max_length"]:  # It was cut off there, and is too long for the context.
                tokens += part
            else:
                tokens += part[len(smile) :] if part[: len(smile)] == smile else self._parts([text])[0]
        return tokens

    def _cut(self, text: str) -> list[str]:
        """Return a text cut within each marker that it holds."""
        found = self._tokenizer(text, **self._options, return_offsets_mapping=True)
        spans = zip(found["input_ids"], found["offset_mapping"], strict=True)
        cuts = [(start + end + 1) // 2 for token, (start, end) in spans if token in self._markers]
        return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]
