"""What is learned from steps, and how much may be added to one."""

from random import Random

import pytest

from deployments.models.replica.step_times import StepTimes


def learn(times, fixed_s, each_s, sizes, num=400, noise_s=0.0):
    """Have steps seen that take so long."""
    rng = Random(1)
    for _ in range(num):
        size = rng.choice(sizes)
        times.note(size, max(0.0, fixed_s + each_s * size + rng.gauss(0, noise_s)))


@pytest.fixture
def times():
    return StepTimes()


def test_little_is_added_as_long_as_nothing_is_known(times):
    assert times.room(1) == 4
    learn(times, 0.003, 0.0002, [2])  # Of one size only.
    learn(times, 0.003, 0.0002, [1, 2, 3])
    assert times.room(1) == 4


def test_a_step_becomes_a_quarter_longer(times):
    learn(times, 0.004, 0.0001, [1, 5, 9, 400])
    assert times.room(0) == 10
    assert times.room(40) == 20


def test_noise_changes_little(times):
    learn(times, 0.004, 0.0002, [1, 3, 5, 8], num=2000, noise_s=0.001)
    assert 3 <= times.room(1) <= 8


def test_where_tokens_cost_next_to_nothing_many_are_added_and_where_they_cost_a_lot_few_are(times):
    learn(times, 0.01, 0.000001, [1, 8, 1000])
    assert times.room(1) == 512
    learn(times, 0.001, 0.01, [1, 8, 200], num=5000)
    assert times.room(0) == 2


def test_the_latest_steps_count(times):
    learn(times, 0.004, 0.0001, [1, 9, 400])
    learn(times, 0.004, 0.0004, [1, 9, 400], num=5000)
    assert times.room(0) == 2
    learn(times, 0.008, 0.0001, [1, 9, 400], num=5000)
    assert times.room(0) in (19, 20)


def test_what_was_learned_stays_while_steps_are_of_one_size(times):
    learn(times, 0.004, 0.0001, [1, 5, 9, 400])
    learn(times, 0.004, 0.0001, [6], num=20_000)
    assert times.room(0) in (9, 10)


def test_what_was_learned_from_small_steps_is_believed_for_twice_their_size(times):
    learn(times, 0.01, 0.000001, [6, 8, 10])
    assert 15 <= times.room(1) <= 17


def test_times_that_shrink_with_size_are_noise(times):
    learn(times, 0.004, -0.00001, [1000, 1008, 1040])
    assert times.room(1) == 512
