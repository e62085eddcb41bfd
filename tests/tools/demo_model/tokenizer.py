"""The demo model's tokenizer: common words are one token each, everything else is letters, digits and bytes.

Names, cities and words to work on are no tokens, so that the model sees their letters: it copies those that
training never saw as well as those that it saw.
"""

import itertools
from collections import Counter
from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from tests.tools.demo_model import topics, words
from tests.tools.demo_model.dialogue import Dialogue, render
from tests.tools.demo_model.mixture import train_dialogues

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKUP_TOKENS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
PAD, END = "<|endoftext|>", "<|im_end|>"
_PIECE = r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s"
_LEAST_COUNT, _MOST_WORDS = 8, 1900
_IGNORED = -100


def build_tokenizer(num_dialogues: int = 20_000) -> Tokenizer:
    """Return the tokenizer, the same on every machine, from the words of the generated dialogues."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL_TOKENS, *MARKUP_TOKENS, *alphabet]
    tokens += [word for word in _count_words(num_dialogues) if word not in set(tokens)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = _pieces()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in MARKUP_TOKENS])
    return tokenizer


def encode(tokenizer: Tokenizer, dialogue: Dialogue) -> tuple[list[int], list[int]]:
    """Return a dialogue's tokens, and as many targets: a token that the model writes, or -100."""
    pieces = render(dialogue)
    tokens: list[int] = []
    targets: list[int] = []
    for encoding, (_, is_written) in zip(
        tokenizer.encode_batch_fast([text for text, _ in pieces], add_special_tokens=False), pieces, strict=True
    ):
        tokens += encoding.ids
        targets += encoding.ids if is_written else [_IGNORED] * len(encoding.ids)
    return tokens, targets


def _pieces() -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(_PIECE), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _count_words(num_dialogues: int) -> list[str]:
    """Return the words of generated dialogues, the most frequent first, without what is copied letter by letter."""
    splitter = _pieces()
    marks = Regex("|".join(token.replace("|", r"\|") for token in (*SPECIAL_TOKENS, *MARKUP_TOKENS)))
    without_marks = pre_tokenizers.Split(marks, behavior="removed")
    counts: Counter[str] = Counter()
    for dialogue in itertools.islice(train_dialogues(seed=0), num_dialogues):
        text = "".join(piece for piece, _ in render(dialogue))
        for piece, _ in without_marks.pre_tokenize_str(text):
            counts.update(token for token, _ in splitter.pre_tokenize_str(piece))
    spelled = {word.casefold() for word in _spelled()}
    spelled |= {word[::-1] for word in spelled}
    common = [
        (count, token)
        for token, count in counts.items()
        if count >= _LEAST_COUNT and token.removeprefix("Ġ").casefold() not in spelled
    ]
    common.sort(key=lambda pair: (-pair[0], pair[1]))
    return [token for _, token in common[:_MOST_WORDS]]


def _spelled() -> Iterable[str]:
    for pool in (words.NAMES, words.CITIES, words.THINGS, words.TOPICS, words.NOUNS):
        yield from pool.train
        yield from pool.held_out
    for topic in (*topics.TOPICS, *topics.FEELINGS):
        yield from (word for word in topic.split() if len(word) > 3)
    yield from words.invented_words()
