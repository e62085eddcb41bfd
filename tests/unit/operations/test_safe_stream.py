import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from deployments.models.contract.engine import EngineRequest, Usage
from deployments.models.contract.events import Finished, Logprobs, TextDelta, ToolArgumentsDelta, ToolCallStart
from serve_app.operations.safety.policy import SafetyConfig, create_policies
from serve_app.operations.safety.stream import HeldChoice, SafeStream, Watched
from tests.twins.engine import MemoryDirectory, Script, ScriptedEngine, model_card

REQUEST = EngineRequest("chat", "req_1", b"{}")


def policy(**config):
    return create_policies({"m": SafetyConfig(**config)}, MemoryDirectory([]))["m"]


def flow(events, **config):
    """Return the text that a choice lets out for the events, and the reason at its end."""
    choice, out = HeldChoice(0, policy(**config)), []
    for event in events:
        if not choice.has_ended:
            choice.add(event)
            out += choice.release()
    assert choice.has_ended
    assert isinstance(out[-1], Finished)
    assert not any(isinstance(event, Finished) for event in out[:-1])
    return "".join(event.text for event in out if hasattr(event, "text")), out[-1].reason


def cut(text, at):
    """Return the text in pieces, cut at the given places."""
    places = [0, *sorted({place % (len(text) + 1) for place in at}), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


@given(
    text=st.text("abc ", max_size=60),
    places=st.lists(st.integers(0, 60), max_size=20),
    pattern=st.sampled_from(["ab+c", "abc", "(?i)A{2}", "b c|cab", r"\bcab\b", "a.c", "c+"]),
    window=st.integers(20, 40),
)
def test_text_passes_up_to_the_first_match_however_it_is_cut(text, places, pattern, window):
    match = re.search(pattern.replace("(?i)A", "[aA]"), text)
    if match and len(match.group()) >= window:
        return
    events = [TextDelta("text", 0, piece) for piece in cut(text, places)]
    passed, reason = flow([*events, Finished("finished", 0, "stop")], patterns=(pattern,), window_chars=window)
    assert passed == (text[: match.start()] if match else text)
    assert reason == ("content_filter" if match else "stop")


@given(st.text("abx", min_size=1, max_size=200))
def test_text_is_held_back_no_longer_than_the_window(text):
    choice = HeldChoice(0, policy(patterns=("never",), window_chars=7))
    out = []
    for number, letter in enumerate(text, 1):
        choice.add(TextDelta("text", 0, letter))
        out += choice.release()
        assert len(out) == max(0, number - 7)


def test_match_that_grows_beyond_the_window_still_ends_the_choice():
    events = [TextDelta("text", 0, "x" * 10 + "bad" + "y" * 5)] * 10
    passed, reason = flow(events, patterns=("bad.*",), window_chars=30)
    assert reason == "content_filter"
    assert passed == "x" * 10


def test_long_text_keeps_a_short_tail():
    choice = HeldChoice(0, policy(patterns=("never",), window_chars=10))
    for _ in range(1000):
        choice.add(TextDelta("text", 0, "0123456789"))
        choice.release()
    assert len(choice._tail) <= 40


def test_word_is_not_judged_before_its_end_is_seen():
    events = [TextDelta("text", 0, "a bad"), TextDelta("text", 0, "ger"), Finished("finished", 0, "stop")]
    assert flow(events, patterns=(r"\bbad\b",)) == ("a badger", "stop")


def test_kinds_of_text_are_kept_apart():
    events = [
        TextDelta("text", 0, "for"),
        ToolCallStart("tool_call", 0, 0, "call_1", "bidden"),
        ToolArgumentsDelta("tool_arguments", 0, 0, "bid"),
        ToolArgumentsDelta("tool_arguments", 0, 1, "den"),
        Finished("finished", 0, "tool_calls"),
    ]
    assert flow(events, patterns=("forbidden", "bidden$$", "bidden.")) == ("forbidden", "tool_calls")


def test_name_of_a_tool_is_checked():
    events = [ToolCallStart("tool_call", 0, 0, "call_1", "forbidden"), Finished("finished", 0, "tool_calls")]
    assert flow(events, patterns=("forbidden",)) == ("", "content_filter")


def test_logprobs_of_cut_text_are_not_told():
    choice = HeldChoice(0, policy(patterns=("bad",)))
    choice.add(TextDelta("text", 0, "so bad"))
    choice.add(Logprobs("logprobs", 0, [{"token": "bad"}]))
    choice.add(Finished("finished", 0, "stop"))
    assert choice.release() == [TextDelta("text", 0, "so "), Finished("finished", 0, "content_filter")]


class Plain:
    """Renders text as it is."""

    def text(self, choice, text):
        return text.encode()

    def events(self, events):
        return b"".join(self.text(0, event.text) for event in events if isinstance(event, TextDelta))

    def finish(self, usage):
        return b"|%d" % usage.total_tokens


def safe(script, prompt="hello", **config):
    engine = ScriptedEngine(model_card("m"), lambda request: script)
    watched = Watched(REQUEST, prompt, 1, lambda piece: [TextDelta("text", 0, piece.decode())], Plain())
    return SafeStream(engine, policy(**config), watched), engine


async def test_engine_that_ends_without_saying_so_still_ends_the_answer():
    stream, _ = safe(Script([b"abc"], Usage(1, 1)), patterns=("zzz",), window_chars=1)
    assert [piece async for piece in stream] == [b"|2"]
    assert stream.summary.finish_reasons == ["stop"]


async def test_summary_is_the_engines_with_the_filters_reason():
    stream, engine = safe(Script([b"bad", b"more"], Usage(1, 1), usage_when_aborted=Usage(2, 1)), patterns=("ba",))
    assert b"".join([piece async for piece in stream]) == b"|3"
    assert stream.summary.finish_reasons == ["content_filter"]
    assert stream.summary.usage == Usage(2, 1)
    assert engine.streams[0].is_aborted


async def test_closing_before_it_began_runs_nothing():
    stream, engine = safe(Script([b"abc"]), patterns=("zzz",))
    await stream.aclose()
    assert not engine.streams
    assert stream.summary.usage is None


async def test_closing_midway_aborts_the_engine():
    stream, engine = safe(
        Script([b"a" * 50, b"b"], usage_when_aborted=Usage(4, 1)),
        patterns=("zzz",),
        window_chars=1,
        checks_answer=False,
    )
    pieces = aiter(stream)
    await anext(pieces)
    await stream.aclose()
    assert engine.streams[0].is_aborted
    assert stream.summary.usage == Usage(4, 1)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"patterns": ("(",)},
        {"patterns": ("a*",)},
        {"patterns": ("(?=a)b",)},
        {"patterns": (r"(a)\1",)},
        {"patterns": ("a",), "window_chars": 0},
        {"patterns": ("a",), "windows": 3},
        {"guard_model": "g", "guard_prompt": "no place"},
        {"guard_model": "g", "guard_verdict": "["},
        {"guard_model": "g", "guard_safe": ".*"},
    ],
    ids=str,
)
def test_policy_that_cannot_work_is_refused(config):
    with pytest.raises(ValidationError):
        SafetyConfig(**config)


def test_patterns_take_linear_time():
    found = policy(patterns=("(a+)+$b",))
    assert found.matcher.search("a" * 5000) is None
