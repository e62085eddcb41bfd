"""How often the background has a turn beside answers, by what its turns have cost."""

from random import Random

import pytest

from deployments.replica.scheduling.turns import Turns

ROOM = 1
NUM_STEPS = 8_000


@pytest.fixture
def turns():
    return Turns()


def run(turns, step_s, num_answers=lambda step: 1, room=ROOM):
    """Run steps that take as long as `step_s` says for answers, background and step; return who had each."""
    had = []
    for step in range(NUM_STEPS):
        held = room if turns.has_background(room) else 0
        turns.note(num_answers(step), held, step_s(num_answers(step), held, step))
        had.append(held > 0)
    return had


def share(had):
    late = had[len(had) // 2 :]
    return sum(late) / len(late)


def test_at_first_the_background_has_every_other_turn(turns):
    assert turns.share(1) == turns.share(400) == 0.5
    assert [turns.has_background(1) for _ in range(32)] == ([True] * 8 + [False] * 8) * 2


@pytest.mark.parametrize(("longer", "expected"), [(0.1, 0.5), (0.2, 0.25), (0.4, 0.125), (5.0, 1 / 16)])
def test_where_a_step_takes_longer_so_many_hold_some_that_their_mean_is_a_twentieth_longer(turns, longer, expected):
    had = run(turns, lambda answers, held, step: 0.004 * (1 + longer * held))
    assert share(had) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("longer", [0.02, 0.0, -0.1])
def test_where_it_takes_less_one_turn_of_sixteen_is_still_without(turns, longer):
    had = run(turns, lambda answers, held, step: 0.004 * (1 + longer * held))
    assert share(had) == pytest.approx(15 / 16, abs=0.01)


def test_more_tokens_have_fewer_turns(turns):
    run(turns, lambda answers, held, step: 0.004 * (1 + 0.05 * held), room=2)
    assert turns.share(2) == pytest.approx(0.5)
    assert turns.share(4) == pytest.approx(0.25)
    assert turns.share(1) == pytest.approx(15 / 16)


def test_neither_the_speed_of_the_machine_nor_other_answers_change_what_is_learned(turns):
    rng = Random(1)

    def step_s(answers, held, step):
        speed = 1.0 if step // 300 % 2 else 0.5
        spike = 10 if rng.random() < 0.1 else 1
        return spike * rng.gauss(1, 0.05) * speed * (0.003 + 0.001 * answers) * (1 + 0.15 * held)

    had = run(turns, step_s, lambda step: 1 + step // 100 % 4)
    assert share(had) == pytest.approx(1 / 3, abs=0.05)


def test_the_latest_turns_count(turns):
    run(turns, lambda answers, held, step: 0.004 * (1 + held))
    assert turns.share(1) == pytest.approx(1 / 16)
    run(turns, lambda answers, held, step: 0.004 * (1 + 0.1 * held))
    assert turns.share(1) == pytest.approx(0.5)


def test_turns_of_other_answers_are_not_compared(turns):
    for step in range(100):
        turns.note(1 + step // 8 % 2, step // 8 % 2, 0.004)
    assert turns.share(1) == 0.5


def test_two_steps_do_not_make_a_turn(turns):
    for step in range(100):
        turns.note(1, step // 2 % 2, 0.004)
    assert turns.share(1) == 0.5


def test_a_turn_that_has_ended_leaves_the_next_to_the_background(turns):
    for _ in range(9):
        had = turns.has_background(1)
    assert not had
    turns.end()
    assert [turns.has_background(1) for _ in range(8)] == [True] * 8
