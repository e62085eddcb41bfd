"""What is learned from steps, and how much may be added to one."""

from random import Random

import pytest

from deployments.replica.scheduling.step_times import Kind, ReadingPace, StepTimes

BESIDE, BETWEEN = Kind


def learn(times, fixed_s, each_s, sizes, num=400, noise_s=0.0, kind=BETWEEN):
    """Have steps seen that take so long."""
    rng = Random(1)
    for _ in range(num):
        size = rng.choice(sizes)
        times.note(kind, size, max(0.0, fixed_s + each_s * size + rng.gauss(0, noise_s)))


@pytest.fixture
def times():
    return StepTimes()


@pytest.mark.parametrize("kind", Kind)
def test_little_is_added_as_long_as_nothing_is_known(times, kind):
    assert times.room(kind, 1) == 4
    learn(times, 0.003, 0.0002, [2], kind=kind)  # Of one size only.
    learn(times, 0.003, 0.0002, [1, 2, 3], kind=kind)
    assert times.room(kind, 1) == 4


def test_a_step_beside_answers_becomes_a_tenth_longer(times):
    learn(times, 0.004, 0.0001, [1, 5, 9, 400], kind=BESIDE)
    assert times.room(BESIDE, 1) == 4
    assert times.room(BESIDE, 60) == 10


def test_a_step_between_answers_takes_no_longer_than_one_beside_an_answer(times):
    learn(times, 0.004, 0.0001, [1, 5, 9, 400], kind=BESIDE)
    learn(times, 0.002, 0.0001, [100])  # Alone, one size would say nothing.
    assert times.room(BETWEEN, 0) in (24, 25)  # 1.1 x 4.1 ms.
    learn(times, 0.006, 0.0001, [100], num=5000)
    assert times.room(BETWEEN, 0) == 1


def test_as_long_as_no_answers_were_seen_a_step_between_them_becomes_a_tenth_longer(times):
    learn(times, 0.004, 0.0001, [1, 5, 9, 400])
    assert times.room(BETWEEN, 0) == 5  # 1.1 x (4.0 + 0.1) - 4.0 ms.


def test_noise_changes_little(times):
    learn(times, 0.004, 0.0002, [1, 3, 5, 8], num=2000, noise_s=0.001, kind=BESIDE)
    assert 1 <= times.room(BESIDE, 1) <= 4


def test_where_tokens_cost_next_to_nothing_many_are_added_and_where_they_cost_a_lot_few_are(times):
    learn(times, 0.01, 0.000001, [1, 8, 1000], kind=BESIDE)
    assert times.room(BESIDE, 1) == 512
    learn(times, 0.001, 0.01, [1, 8, 200], num=5000, kind=BESIDE)
    assert times.room(BESIDE, 1) == 1


def test_the_latest_steps_count(times):
    learn(times, 0.004, 0.0001, [1, 9, 400], kind=BESIDE)
    learn(times, 0.008, 0.0002, [1, 9, 400], num=5000, kind=BESIDE)
    assert times.room(BESIDE, 1) == 4
    learn(times, 0.016, 0.0001, [1, 9, 400], num=5000, kind=BESIDE)
    assert times.room(BESIDE, 1) in (15, 16)


def test_what_was_learned_stays_while_steps_are_of_one_size(times):
    learn(times, 0.019, 0.0001, [1, 5, 9, 400], kind=BESIDE)
    learn(times, 0.019, 0.0001, [6], num=20_000, kind=BESIDE)
    assert times.room(BESIDE, 10) in (12, 13)  # Twice of late.
    learn(times, 0.019, 0.0001, [100], num=5000, kind=BESIDE)
    assert times.room(BESIDE, 10) in (19, 20)


def test_what_was_learned_from_small_steps_is_believed_for_twice_their_size(times):
    learn(times, 0.01, 0.000001, [6, 8, 10], kind=BESIDE)
    assert 15 <= times.room(BESIDE, 1) <= 17


def test_times_that_shrink_with_size_are_noise(times):
    learn(times, 0.004, -0.00001, [1000, 1008, 1040], kind=BESIDE)
    assert times.room(BESIDE, 1) == 512


def test_one_is_added_where_steps_take_too_long_already_and_tokens_nothing(times):
    learn(times, 0.004, -0.00001, [1, 8, 40], kind=BESIDE)
    learn(times, 0.008, -0.00001, [1, 8, 40])
    assert times.room(BETWEEN, 0) == 1


def pace_after(*steps, most=4096):
    """Return the pace after steps of these tokens, with these seconds between two steps."""
    pace = ReadingPace(most)
    for num_tokens, seconds in steps:
        pace.note(num_tokens, seconds)
    return pace.tokens


def test_a_step_reads_less_once_reading_takes_longer_than_a_tenth_of_a_second():
    assert pace_after((4096, 0.4), (4096, 0.4)) == 4096  # Steps may be planned ahead: these times are of others.
    assert pace_after((4096, 0.4), (4096, 0.4), (4096, 0.4)) == 1024
    assert pace_after(*[(4096, 9.0)] * 9) == 256


def test_a_step_reads_more_again_as_far_as_it_may():
    slow = [(4096, 0.8)] * 3
    assert pace_after(*slow) == 512
    assert pace_after(*slow, (512, 0.01), (512, 0.01)) == 1024
    assert pace_after(*slow, *[(4096, 0.01)] * 20) == 4096


def test_steps_that_read_little_tell_nothing_of_how_long_reading_takes():
    assert pace_after(*[(4000, 9.0)] * 9) == 4096


def test_an_engine_with_small_steps_reads_what_fits_into_them():
    assert pace_after(*[(128, 9.0)] * 9, most=128) == 128
