"""Tokens that end an answer are left out of the masks of requests that still reason."""

from types import SimpleNamespace

import numpy
import pytest

from deployments.replica.scheduling.open_reasoning import OpenReasoning

START, END, STOPS = [7, 8], [9], {3, 31, 64, 9, 500}
MARKS = SimpleNamespace(enabled=True, reasoning_start_token_ids=START, natural_reasoning_end_token_ids=END)
FREE = numpy.full(3, -1, dtype=numpy.int32)


class Asked:
    """A request of the engine's."""

    def __init__(self, tokens, reasoning_ended=False):
        self.all_token_ids = tokens
        self.structured_output_request = SimpleNamespace(reasoning_ended=reasoning_ended)
        self.sampling_params = SimpleNamespace(all_stop_token_ids=STOPS)


def left_out(reasoning, *asked, drafts=(), masks=None):
    """Return the tokens that each mask lacks after it was nothing but free."""
    names = [str(number) for number in range(len(asked))]
    masks = numpy.stack([FREE] * (len(asked) + len(drafts)) if masks is None else masks)
    output = SimpleNamespace(structured_output_request_ids=names, grammar_bitmask=masks)
    reasoning.forbid_ends(output, dict(zip(names, asked, strict=True)), {names[0]: drafts})
    bits = numpy.unpackbits(masks.view(numpy.uint8), axis=1, bitorder="little")
    return [set(numpy.flatnonzero(row == 0).tolist()) for row in bits]


@pytest.fixture
def reasoning():
    return OpenReasoning.of(MARKS)


@pytest.mark.parametrize("tokens", [[7, 8], [1, 7, 8, 2, 2], [7, 8, 9, 1, 7, 8, 5]])
def test_an_answer_cannot_end_in_reasoning_that_has_begun(reasoning, tokens):
    assert left_out(reasoning, Asked(tokens)) == [{3, 31, 64}]  # The end of the reasoning may be one of the stops.


@pytest.mark.parametrize("tokens", [[], [1, 2], [7], [8, 7], [7, 8, 5, 9, 1]])
def test_an_answer_may_end_where_no_reasoning_has_begun(reasoning, tokens):
    assert left_out(reasoning, Asked(tokens)) == [set()]


@pytest.mark.parametrize("ended", [True, None])
def test_an_answer_may_end_after_its_reasoning(reasoning, ended):
    assert left_out(reasoning, Asked([7, 8, 9], ended)) == [set()]


def test_reasoning_that_begins_later_is_seen_and_remembered(reasoning):
    asked = Asked([1] * 1000)
    assert left_out(reasoning, asked) == [set()]
    asked.all_token_ids += [7, 8]
    assert left_out(reasoning, asked) == [{3, 31, 64}]
    asked.all_token_ids += [1] * 1000
    assert left_out(reasoning, asked) == [{3, 31, 64}]


def test_each_request_and_each_draft_has_its_own_mask(reasoning):
    open_, ended = Asked([7, 8]), Asked([7, 8, 9], True)
    assert left_out(reasoning, open_, ended, drafts=(5, 5)) == [{3, 31, 64}] * 3 + [set()]
    assert left_out(reasoning, ended, open_, drafts=(5, 5)) == [set()] * 3 + [{3, 31, 64}]


def test_a_mask_of_the_grammar_stays(reasoning):
    of_grammar = numpy.array([8, 0, 0], dtype=numpy.int32)  # Nothing but token 3.
    free, held = left_out(reasoning, Asked([7, 8]), drafts=(9,), masks=[FREE, of_grammar])
    assert free == {3, 31, 64}
    assert 3 not in held


def test_an_engine_that_does_not_know_the_marks_leaves_its_masks():
    assert OpenReasoning.of(None) is None
    assert OpenReasoning.of(SimpleNamespace(enabled=False)) is None
