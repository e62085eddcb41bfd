"""Remembers the tokens of the parts of long prompts: a turn of a long conversation tokenizes only what is new.

A tokenizer reads about a megabyte a second. Of a long session, whose prompt the engine has in its cache, it would read
everything again at each turn, which takes longer than the engine does.

Special tokens, with which chat templates begin and end messages, are found before anything else is read. So a prompt
can be cut before each of them, and its tokens are those of the parts. A probe finds out whether that holds for a
tokenizer; if not, nothing is remembered. Accounts share nothing here, as in the engine's cache.
"""

import asyncio
import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from threading import Lock
from typing import Any, Final

OWNER: Final[ContextVar[str]] = ContextVar("OWNER", default="")
"""The cache salt of the request that is being prepared; without one nothing is remembered."""
_MAX_CHARS: Final = 32 * 2**20
"""Of all parts: about fifty conversations of 150,000 tokens. With their tokens they take some 64 MB."""
_MIN_CHARS: Final = 256
"""Of a part, so that a text of many special tokens has few parts."""
_MAX_CUTS: Final = 64
"""Some tokenizers have thousands of special tokens, for which every place would be compared with each."""
_PROBE: Final = ("", " a", "b ", "Été 漢字 🦀\n\n", "  x\t", '{"a": 1}')

Tokenize = Callable[[str], Sequence[int]]


class TokenizedParts:
    """The tokens of the parts of prompts that were tokenized last.

    Before the texts in `cuts`, special tokens, a prompt may be cut. `added` has these and every other token that may
    cover them. `max_chars` bounds the parts that are kept, `min_chars` the size of each.
    """

    def __init__(
        self, added: Collection[str], cuts: Collection[str], max_chars: int = _MAX_CHARS, min_chars: int = _MIN_CHARS
    ) -> None:
        # The longest of several that begin at a place is found, as tokenizers do.
        self._added = re.compile("|".join(map(re.escape, sorted(added, key=len, reverse=True))))
        self._cuts = frozenset(cuts)
        self._max_chars = max_chars
        self._min_chars = min_chars
        self._known: OrderedDict[tuple[str, str], array[int]] = OrderedDict()
        self._num_chars = 0
        self._lock = Lock()

    def is_exact(self, tokenize: Tokenize) -> bool:
        """Return whether the tokens of a text are those of its parts."""
        text = "".join(before + cut for cut in self._cuts for before in _PROBE)
        return list(tokenize(text)) == [token for part in self._parts_of(text, 1) for token in tokenize(part)]

    def tokens_of(self, text: str, owner: str, tokenize: Tokenize, max_tokens: int | None = None) -> list[int]:
        """Return the tokens of a text; `tokenize` gets the parts that are new for the owner.

        With `max_tokens` it returns no more than those, and only whole parts are kept.
        """
        tokens: list[int] = []
        for part in self._parts_of(text, self._min_chars):
            known = self._find((owner, part))
            if known is None:
                known = array("i", tokenize(part))
                if max_tokens is None or len(known) < max_tokens:
                    self._keep((owner, part), known)
            tokens += known
            if max_tokens is not None and len(tokens) >= max_tokens:
                return tokens[:max_tokens]
        return tokens

    def _parts_of(self, text: str, min_chars: int) -> Iterator[str]:
        begin = 0
        for found in self._added.finditer(text):
            if found[0] in self._cuts and found.start() - begin >= min_chars:
                yield text[begin : found.start()]
                begin = found.start()
        yield text[begin:]

    def _find(self, key: tuple[str, str]) -> "array[int] | None":
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
            return known

    def _keep(self, key: tuple[str, str], tokens: "array[int]") -> None:
        with self._lock:
            if self._known.setdefault(key, tokens) is not tokens:
                return  # Another thread was faster.
            self._num_chars += len(key[1])
            while self._num_chars > self._max_chars:
                (_, oldest), _ = self._known.popitem(last=False)
                self._num_chars -= len(oldest)


def remember_parts(renderer: Any) -> None:
    """Make vLLM's renderer remember the tokens of long prompts, if its tokenizer allows it.

    The prompts of chats, that is: those that get no special tokens from the tokenizer, and are not truncated.
    """
    tokenizer = renderer.get_tokenizer()
    parts = _parts_for(tokenizer)
    if parts is None:
        return
    read_whole = renderer._tokenize_prompt_async

    async def run(prompt: Any, params: Any) -> Any:
        owner = OWNER.get()
        is_plain = params.truncate_prompt_tokens is None and not params.add_special_tokens
        if not owner or not is_plain or renderer._wants_offsets(prompt, params):
            return await read_whole(prompt, params)
        options = params.get_encode_kwargs()

        def work() -> list[int]:
            def tokenize(text: str) -> Sequence[int]:
                ids: Sequence[int] = tokenizer(text, **options)["input_ids"]
                return ids

            return parts.tokens_of(prompt["prompt"], owner, tokenize, options["max_length"])

        tokens = await asyncio.get_running_loop().run_in_executor(renderer._executor, work)
        return renderer._build_tokens_prompt(tokens, prompt)

    renderer._tokenize_prompt_async = run


def _parts_for(tokenizer: Any) -> TokenizedParts | None:
    """Return the memory for a tokenizer; None if the tokens of a text are not those of its parts."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    added = [token for token in tokenizer.added_tokens_decoder.values() if not token.normalized and token.content]
    # A token that takes white space with it, or stands alone, depends on what is before it.
    cuts = {
        token.content for token in added if token.special and not (token.lstrip or token.rstrip or token.single_word)
    }
    if len(cuts) > _MAX_CUTS:
        cuts = {text for text in cuts if text in str(tokenizer.chat_template)}
    if not cuts:
        return None
    others = {token.content for token in added} - cuts
    parts = TokenizedParts({text for text in others if any(_may_cover(text, cut) for cut in cuts)} | cuts, cuts)
    is_exact = parts.is_exact(lambda text: tokenizer(text, add_special_tokens=False)["input_ids"])
    return parts if is_exact else None


def _may_cover(text: str, cut: str) -> bool:
    """Return whether a token of this text, found first, may take a part of the other's text."""
    return cut in text or any(text.endswith(cut[:length]) for length in range(1, len(cut)))
