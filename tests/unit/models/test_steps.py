import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.models.contract.steps import PromptTokens, Step, Written, pack_prompt, pack_step, unpack

TOKEN = st.integers(0, 2**32 - 1)
STEP = st.builds(Step, st.integers(0, 1000), st.lists(TOKEN, max_size=20))


@given(st.lists(STEP, max_size=20), st.integers(0, 50))
def test_notes_say_the_steps_that_they_were_made_of(steps, prompt_tokens):
    notes = pack_prompt(0, PromptTokens(prompt_tokens, 3)) + b"".join(pack_step(*step) for step in steps)
    written = Written(unpack(notes))
    assert written.steps == steps
    assert written.prompts == {0: PromptTokens(prompt_tokens, 3)}
    assert written.num_tokens == sum(len(step.token_ids) for step in steps)


def test_groups_are_by_choice_and_those_without_any_are_left_out():
    notes = pack_step(4, [1]) + pack_step(6, [2, 3]) + pack_step(4, []) + pack_step(7, [9])
    written = Written(unpack(notes))
    assert written.groups_of(4) == [[1], []]
    assert written.groups(4, 3) == {0: [[1], []], 2: [[2, 3]]}


def test_first_note_about_a_prompt_counts():
    notes = pack_prompt(1, PromptTokens(7, 0)) + pack_prompt(1, PromptTokens(7, 6)) + pack_prompt(0, PromptTokens(2, 1))
    assert Written(unpack(notes)).prompts == {1: PromptTokens(7, 0), 0: PromptTokens(2, 1)}


@pytest.mark.parametrize("num_tokens", [1, 2, 500])
def test_a_token_takes_four_bytes_beside_eight_of_its_step(num_tokens):
    assert len(pack_step(0, [5] * num_tokens)) == 8 + 4 * num_tokens
