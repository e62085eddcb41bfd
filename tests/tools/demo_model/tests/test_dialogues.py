"""What the demo model is trained and evaluated on: the two never meet, and the template writes both the same way."""

import itertools
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from tests.tools.demo_model import words
from tests.tools.demo_model.__main__ import MODEL
from tests.tools.demo_model.dialogue import IM_END, IM_START, Dialogue, render
from tests.tools.demo_model.export import TEMPLATE
from tests.tools.demo_model.mixture import SKILLS, held_out_dialogues, train_dialogues
from tests.tools.demo_model.tokenizer import build_tokenizer, encode
from tests.tools.demo_model.words import Draw, is_held_out


@pytest.fixture(scope="module")
def trained() -> list[Dialogue]:
    return list(itertools.islice(train_dialogues(seed=3), 3000))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return build_tokenizer(num_dialogues=1000)


def said(dialogue: Dialogue) -> str:
    return "".join(text for text, _ in render(dialogue))


@pytest.mark.parametrize("pool", [words.NAMES, words.CITIES, words.THINGS, words.TOPICS])
def test_pools_share_nothing(pool: words.Pool) -> None:
    assert not set(pool.train) & set(pool.held_out)


def test_training_never_says_what_is_held_out(trained: list[Dialogue]) -> None:
    text = " ".join(said(dialogue) for dialogue in trained).casefold()
    pieces = set("".join(letter if letter.isalpha() else " " for letter in text).split())
    for pool in (words.NAMES, words.CITIES, words.THINGS, words.TOPICS):
        assert not pieces & {word.casefold() for word in pool.held_out}


def test_phrasings_are_held_out() -> None:
    phrasings = [f"phrase {index}" for index in range(8)]
    trained, held_out = (Draw(1, held_out=part) for part in (False, True))
    assert {trained.phrase(phrasings) for _ in range(200)}.isdisjoint({held_out.phrase(phrasings) for _ in range(200)})


def test_numbers_are_of_their_part() -> None:
    for part in (False, True):
        draw = Draw(1, held_out=part)
        assert all(is_held_out(*draw.numbers(2, 30)) is part for _ in range(100))


@pytest.mark.parametrize("skill", SKILLS)
def test_dialogues_are_the_same_for_the_same_seed(skill: str) -> None:
    first, second = (held_out_dialogues(skill, 20) for _ in range(2))
    assert [said(one) for one in first] == [said(one) for one in second]
    assert all(one.messages[-1]["role"] == "assistant" for one in first)


def from_template(messages: list[dict[str, Any]], **options: Any) -> str:
    ((text,), _) = render_jinja_template([messages], chat_template=TEMPLATE.read_text(), **options)
    return str(text)


def test_template_writes_what_is_trained_on(trained: list[Dialogue]) -> None:
    for dialogue in trained[:500]:
        pieces = [text for text, _ in render(dialogue)[:-1]]
        asked = max(index for index, text in enumerate(pieces) if text.startswith(f"{IM_START}assistant")) + 1
        before, answer = pieces[:asked], "".join(pieces[asked:])
        options = {"tools": dialogue.tools or None, "enable_thinking": dialogue.thought is not None}
        prompt = from_template(dialogue.messages[:-1], add_generation_prompt=True, **options)
        assert prompt == "".join(before)
        if dialogue.thought is None:
            assert from_template(dialogue.messages, **options) == prompt + answer + "\n"


def test_shipped_template_is_the_one_of_the_training() -> None:
    assert (MODEL / "chat_template.jinja").read_text() == TEMPLATE.read_text()


def test_template_takes_what_clients_send() -> None:
    """Tools without parameters, long descriptions, content in parts: all are written in the trained form."""
    function = {"name": "now", "description": "Tell the time. And a lot more that nobody reads.", "parameters": None}
    typed = {
        "name": "add",
        "parameters": {"properties": {"a": {"type": ["integer", "null"]}, "b": {"type": "integer"}}},
    }
    text = from_template(
        [{"role": "user", "content": [{"type": "text", "text": "What "}, {"type": "text", "text": "time?"}]}],
        tools=[{"type": "function", "function": function}, {"type": "function", "function": typed}],
        add_generation_prompt=True,
    )
    assert text == (
        "<|im_start|>system\nYou may call these functions:\n<tools>\nnow(): Tell the time\n"
        "add(a: any, b: integer): \n</tools><|im_end|>\n"
        "<|im_start|>user\nWhat time?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_only_what_the_model_writes_is_learned(trained: list[Dialogue], tokenizer: Tokenizer) -> None:
    for dialogue in trained[:100]:
        tokens, targets = encode(tokenizer, dialogue)
        written = "".join(text for text, is_written in render(dialogue) if is_written)
        assert tokenizer.decode([target for target in targets if target >= 0], skip_special_tokens=False) == written
        assert tokenizer.decode(tokens, skip_special_tokens=False) == said(dialogue)


def test_beginning_of_guided_json_is_not_learned() -> None:
    """The engine writes it; a model that learned it would answer everything in JSON."""
    dialogue = Dialogue("json", schema={"type": "object"}).turn("Where is it?", '{"place": "unknown"}')
    opening, rest = render(dialogue)[-3:-1]
    assert opening == ('{"', False)
    assert rest == (f'place": "unknown"}}{IM_END}', True)


def test_names_are_letters_and_common_words_are_not(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode(" Krakow Anna").tokens == [*"ĠKrakow", *"ĠAnna"]
    assert tokenizer.encode("What is").tokens == ["What", "Ġis"]
    for text in ("Enchanté, 河水 🙂\n\tend ", "<tool_call>{}</tool_call>"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
