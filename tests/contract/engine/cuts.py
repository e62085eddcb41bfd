"""Where an answer is cut, which then goes on elsewhere."""

import pytest


def ends_and_middle(num_writes: int) -> list[int]:
    return sorted({1, 2, num_writes // 2, num_writes - 1, num_writes})


def everywhere(num_writes: int) -> list[int]:
    return list(range(1, num_writes + 1))


wherever_it_is_cut = pytest.mark.parametrize(
    "cuts_of", [ends_and_middle, pytest.param(everywhere, marks=pytest.mark.exhaustive)]
)
