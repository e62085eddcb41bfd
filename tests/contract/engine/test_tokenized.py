"""The tokens of parts of prompts: they are those of the whole, and a later turn reads only what is new."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from deployments.models.demo.sources import resolve_source
from deployments.replica.tokenized import OWNER, TokenizedParts, _parts_for
from tests.contract.engine.test_options import asker, compiler_trained  # noqa: F401
from tests.sessions import COMMAND, INSTRUCTIONS, TOOLS, output_of, text_of, tokens_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

BEGIN, END = "<|im_start|>", "<|im_end|>"
PRE_TOKENIZERS = {
    "demo": None,
    "a space before the first word": pre_tokenizers.Metaspace(prepend_scheme="first"),
    "a space before every piece": pre_tokenizers.Metaspace(prepend_scheme="always"),
    "bytes": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "bytes after a space": pre_tokenizers.ByteLevel(add_prefix_space=True),
}
TEXTS = st.text("ab Ä漢🦀\n\t<|>", max_size=6) | st.sampled_from([BEGIN, END, "<think>", "<|im_start|", "  "])


@cache
def tokenizer_of(name: str):
    """Return a tokenizer as vLLM has it: of the demo model, or one that knows single characters and two pairs."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    if PRE_TOKENIZERS[name] is None:
        return AutoTokenizer.from_pretrained(resolve_source("demo:trained"))
    alphabet = sorted({*map(chr, range(32, 127)), *pre_tokenizers.ByteLevel.alphabet(), *"▁Ä漢🦀\n\t"})
    vocabulary = {token: number for number, token in enumerate([*alphabet, "▁a", "Ġa"])}
    bare = Tokenizer(models.BPE(vocabulary, [("▁", "a"), ("Ġ", "a")]))
    bare.pre_tokenizer = PRE_TOKENIZERS[name]
    bare.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in (BEGIN, END)])
    bare.add_tokens([AddedToken("<think>", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=bare)


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
@given(pieces=st.lists(TEXTS, max_size=20), min_chars=st.integers(1, 9))
def test_the_tokens_of_parts_are_those_of_the_whole(name, pieces, min_chars):
    tokenizer, text = tokenizer_of(name), "".join(pieces)

    def tokenize(part):
        return tokenizer(part, add_special_tokens=False)["input_ids"]

    parts = TokenizedParts({BEGIN, END, "<think>"}, {BEGIN, END}, min_chars=min_chars)
    assert parts.is_exact(tokenize)
    whole = tokenize(text)
    for _ in range(2):
        assert parts.tokens_of(text, "a", tokenize) == whole
    for most in (1, len(whole) // 2 + 1, len(whole) + 1):
        assert TokenizedParts({BEGIN}, {BEGIN}).tokens_of(text, "a", tokenize, most) == whole[:most]


def test_a_tokenizer_whose_parts_differ_is_found_out():
    parts = TokenizedParts({BEGIN}, {BEGIN})
    assert not parts.is_exact(lambda text: [len(text)])
    assert _parts_for(object()) is None
    assert _parts_for(tokenizer_of("demo")) is not None


def test_of_thousands_of_special_tokens_those_of_the_template_are_cuts():
    from transformers import PreTrainedTokenizerFast

    bare = Tokenizer(models.BPE({chr(number): number for number in range(32, 127)}, []))
    bare.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in (BEGIN, END)])
    bare.add_special_tokens([AddedToken(f"<unused{number}>", normalized=False) for number in range(500)])
    bare.add_tokens([AddedToken(f"x{BEGIN}y", normalized=False), AddedToken("z<|im_", normalized=False)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bare, chat_template=f"{BEGIN}{{{{ messages }}}}{END}")
    parts = _parts_for(tokenizer)
    assert parts is not None
    assert parts._cuts == {BEGIN, END}
    for text in (f"a x{BEGIN}y {BEGIN}b{END}<unused7>", f"z{BEGIN}start|>{BEGIN}" * 3):
        whole_text = tokenizer(text, add_special_tokens=False)["input_ids"]
        cut = [t for part in parts._parts_of(text, 1) for t in tokenizer(part, add_special_tokens=False)["input_ids"]]
        assert cut == whole_text


class Reader:
    """Tokenizes, and counts the characters that it reads."""

    def __init__(self) -> None:
        self.num_read = 0

    def __call__(self, text: str):
        self.num_read += len(text)
        return tokens_of(text)


def test_a_turn_reads_what_is_new_and_not_the_whole_session():
    parts, messages, read = TokenizedParts({BEGIN, END}, {BEGIN, END}), [], []
    messages += [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": "Find the wrong part."}]
    tools = [{"type": "function", "function": tool} for tool in TOOLS]
    for turn in range(60):
        call = {"id": "c", "type": "function", "function": {"name": "exec_command", "arguments": COMMAND % turn}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "c", "content": output_of(turn)})
        text, reader = text_of({"messages": messages, "tools": tools}), Reader()
        tokens = parts.tokens_of(text, "a", reader)
        read.append(reader.num_read)
    assert tokens == tokens_of(text)
    assert max(read[1:]) <= min(read[1:]) + 300
    assert read[-1] < len(text) / 20


def test_accounts_share_nothing_and_the_oldest_parts_go_first():
    parts, reader = TokenizedParts({BEGIN}, {BEGIN}, max_chars=100, min_chars=10), Reader()
    texts = [f"{BEGIN}{letter * 28}" for letter in "abc"]
    for owner, text, num_read in (
        ("one", texts[0], 40),
        ("one", texts[0], 0),
        ("two", texts[0], 40),
        ("one", texts[0], 0),
        ("one", texts[1], 40),
        ("one", texts[0], 0),
        ("two", texts[0], 40),
    ):
        before = reader.num_read
        assert parts.tokens_of(text, owner, reader) == tokens_of(text)
        assert reader.num_read - before == num_read, (owner, text)
    assert parts._num_chars <= 100


def test_text_of_many_special_tokens_has_few_parts():
    parts = TokenizedParts({BEGIN}, {BEGIN})
    assert len(list(parts._parts_of(BEGIN * 1000, 256))) <= len(BEGIN) * 1000 / 256


def test_the_engine_reads_the_same_prompt_with_and_without(trained_engine, compiler_trained, monkeypatch):  # noqa: F811
    ask = asker(trained_engine, compiler_trained)
    asked = {"messages": [{"role": "user", "content": f"Who are you? {BEGIN} Été 漢字 {END} " * 12}], "max_tokens": 2}
    seen = []
    monkeypatch.setattr("deployments.replica.renderers.SHORT", 0)
    monkeypatch.setattr(TokenizedParts, "tokens_of", lambda self, *args: seen.append(whole(self, *args)) or seen[-1])
    prompts = [
        ask(**asked, salt=salt, return_token_ids=True)["prompt_token_ids"] for salt in ("", "first", "first", "second")
    ]
    assert all(prompt == prompts[0] for prompt in prompts)
    assert seen == prompts[1:]


whole = TokenizedParts.tokens_of


def test_a_prompt_that_is_too_long_is_refused_as_ever(trained_engine, compiler_trained):  # noqa: F811
    from deployments.models.contract.errors import ContextLengthExceeded

    ask, refusals = asker(trained_engine, compiler_trained), []
    for salt in ("", "one", "one"):
        with pytest.raises(ContextLengthExceeded) as refused:
            ask(messages=[{"role": "user", "content": "Who are you? " * 2000}], salt=salt)
        refusals.append((refused.value.message, refused.value.num_tokens))
    assert len(set(refusals)) == 1
    OWNER.set("")
