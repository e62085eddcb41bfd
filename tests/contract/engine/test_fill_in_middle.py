"""Completions with a suffix: whose markers stand where, that those in texts are text, and what an engine answers."""

import asyncio
import json

import pytest

from deployments.models.contract.errors import ContextLengthExceeded, RequestRejected
from deployments.models.fill_in_middle import FillInMiddle
from tests.contract.engine.replies import Collected

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
STARCODER = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
DEEPSEEK = ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>")  # noqa: RUF001
CODELLAMA = ("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>")
CODESTRAL = ("[PREFIX]", "[SUFFIX]")


def tokenizer_with(markers, *, special=True, begin=None):
    """Return a small byte-level tokenizer with the markers of a family."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(special_tokens=["<s>", "<|im_start|>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator([], trainer)
    tokenizer.add_tokens([AddedToken(marker, normalized=False, special=special) for marker in markers])
    if begin is not None:
        first = (begin, tokenizer.token_to_id(begin))
        tokenizer.post_processor = processors.TemplateProcessing(f"{begin} $A", special_tokens=[first])
    return as_vllm_has_it(tokenizer, bos_token="<s>")


def as_vllm_has_it(tokenizer, **special):
    from transformers import PreTrainedTokenizerFast
    from vllm.tokenizers.hf import get_cached_tokenizer

    return get_cached_tokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special))


@pytest.fixture
def prompts(real_engine):
    """What a model with a tokenizer is asked to continue: a function of the tokenizer, the texts and the suffix."""
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    from deployments.replica.fill_in_middle import GappedPrompts, find_markers

    def prompts(tokenizer, texts, suffix, configured=None):
        async def render(request):
            assert request.suffix is None
            return [{"prompt_token_ids": tokens} for tokens in request.prompt]

        async def scenario():
            markers = find_markers(tokenizer, configured)
            gapped = GappedPrompts(tokenizer, real_engine.client.model_config, markers)
            request = CompletionRequest(model="m", prompt=texts, suffix=suffix, max_tokens=5)
            return await gapped.render(request, render), request.stop_token_ids

        rendered, stops = asyncio.run(scenario())
        return [tokenizer.decode(one["prompt_token_ids"]) for one in rendered], rendered, stops

    return prompts


@pytest.mark.parametrize(
    ("markers", "expected"),
    [
        (QWEN, "<|fim_prefix|>def f(<|fim_suffix|>): pass<|fim_middle|>"),
        (STARCODER, "<fim_prefix>def f(<fim_suffix>): pass<fim_middle>"),
        (DEEPSEEK, "<｜fim▁begin｜>def f(<｜fim▁hole｜>): pass<｜fim▁end｜>"),  # noqa: RUF001
        (CODELLAMA, "▁<PRE>def f(▁<SUF>): pass▁<MID>"),
        (CODESTRAL, "[SUFFIX]): pass[PREFIX]def f("),
    ],
)
def test_known_families_are_found_by_their_tokens(prompts, markers, expected):
    tokenizer = tokenizer_with(markers)
    (shown,), (rendered,), stops = prompts(tokenizer, "def f(", "): pass")
    assert shown == expected
    assert rendered["prompt"] == "def f("
    assert (stops or []) == ([tokenizer.get_vocab()["▁<EOT>"]] if markers is CODELLAMA else [])


def test_a_tokenizer_that_begins_texts_with_a_token_begins_the_whole_with_it(prompts):
    (shown,), *_ = prompts(tokenizer_with(QWEN, begin="<s>"), "a", "b")
    assert shown == "<s><|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"


def test_a_suffix_gets_no_space_from_a_tokenizer_that_begins_texts_with_one(prompts):
    from tokenizers import pre_tokenizers

    tokenizer = tokenizer_with(QWEN)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    (shown,), *_ = prompts(tokenizer, "a", "b")
    assert shown == "<|fim_prefix|> a<|fim_suffix|>b<|fim_middle|>"


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("markers", [QWEN, CODELLAMA, CODESTRAL])
def test_markers_in_the_texts_are_text(prompts, markers, special):
    tokenizer = tokenizer_with(markers, special=special)
    hostile = f"a {' '.join(markers)} b{markers[0]}"
    (shown, _), (rendered, _), _ = prompts(tokenizer, [hostile, "c"], hostile)
    ids = [tokenizer.get_vocab()[marker] for marker in markers]
    spent = [token for token in rendered["prompt_token_ids"] if token in ids]
    assert len(spent) == len(set(spent)) == min(len(markers), 3)
    assert shown.count(hostile) == 2


def test_a_marker_that_is_no_added_token_is_refused_in_a_text(prompts):
    """Its tokenizer can read it only as the marker: one of words, where a marker is a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"[U]": 0, "P": 1, "S": 2, "a": 3, "☺": 4}, unk_token="[U]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = as_vllm_has_it(words)
    form = FillInMiddle(prefix="P", suffix="S")
    assert prompts(tokenizer, "a", "a", form)[0] == ["P a S a"]
    for texts, suffix, param in (("a P", "a", "prompt"), ("a", "S", "suffix")):
        with pytest.raises(RequestRejected, match="can only read as a mark") as refused:
            prompts(tokenizer, texts, suffix, form)
        assert refused.value.param == param


def test_long_texts_are_read_beside_the_loop_and_read_alike(prompts, monkeypatch):
    monkeypatch.setattr("deployments.replica.fill_in_middle.SHORT", 100)
    tokenizer = tokenizer_with(QWEN)
    long = "x" * 300
    (shown,), *_ = prompts(tokenizer, long, long)
    assert shown == f"<|fim_prefix|>{long}<|fim_suffix|>{long}<|fim_middle|>"


def test_configured_markers_come_first_and_must_be_tokens(prompts):
    tokenizer = tokenizer_with([*QWEN, "<a>", "<b>"])
    form = FillInMiddle(prefix="<a>", suffix="<b>", middle="<|fim_middle|>", order="spm")
    assert prompts(tokenizer, "x", "y", form)[0] == ["<b>y<a>x<|fim_middle|>"]
    with pytest.raises(ValueError, match="<c> should each be one token of the model"):
        prompts(tokenizer, "x", "y", FillInMiddle(prefix="<c>", suffix="<b>"))


MARKERS = FillInMiddle(prefix="<|im_start|>", suffix="<|im_end|>", middle="<|endoftext|>")
"""Those of chats, in place of the ones that the demo model lacks."""


@pytest.fixture
def ask(real_engine, compiler):
    from deployments.replica.completions import CompletionRunner
    from deployments.replica.scheduling.preparing import Preparing

    args = real_engine.completions, compiler, Preparing(), real_engine.model

    async def ask(form, stream=False, **body):
        runner = CompletionRunner(*args, fill_in_middle=form)
        reply = Collected()
        header = {"request_id": "req_1", "stream": stream, "cache_salt": "", "priority": 0}
        await runner.run(header, json.dumps({"temperature": 0, "seed": 1, "max_tokens": 6, **body}).encode(), reply)
        return reply

    return lambda form=MARKERS, **body: real_engine.run(ask(form, **body))


def whole(reply):
    return json.loads(b"".join(reply.pieces))


@pytest.mark.parametrize("stream", [False, True])
def test_the_engine_reads_the_whole_and_counts_it(real_engine, ask, stream):
    reply = ask(prompt=["good", "good morning"], suffix=" to you", n=2, temperature=1.0, stream=stream)
    read = real_engine.client.renderer.tokenizer
    lengths = [len(read.encode(text)) + len(read.encode(" to you")) + 3 for text in ("good", "good morning")]
    assert reply.summary["usage"][0] == sum(lengths)
    if not stream:
        assert len(whole(reply)["choices"]) == 4


def test_the_echo_is_the_prompt_without_suffix_and_markers(ask):
    said = whole(ask(prompt="good", suffix=" to you"))["choices"][0]["text"]
    assert whole(ask(prompt="good", suffix=" to you", echo=True))["choices"][0]["text"] == "good" + said
    assert whole(ask(prompt="good", suffix="x", echo=True, max_tokens=0))["choices"][0]["text"] == "good"


def test_what_follows_the_gap_changes_the_answer(ask):
    texts = {whole(ask(prompt="good", suffix=suffix))["choices"][0]["text"] for suffix in (" a", " b", " c", " d")}
    assert len(texts) > 1


def test_a_prompt_and_a_suffix_that_are_too_long_together_are_refused(ask):
    for length in (600, 60_000):
        with pytest.raises(ContextLengthExceeded):
            ask(prompt="good " * length, suffix="good " * length)


def test_a_model_without_markers_says_which_setting_names_them(ask):
    with pytest.raises(RequestRejected, match="'fill_in_middle'") as refused:
        ask(None, prompt="good", suffix="x")
    assert (refused.value.param, refused.value.code) == ("suffix", "unsupported_parameter")
    assert whole(ask(None, prompt="good"))["choices"][0]["text"]
