"""The groups of tests that share a process are there."""

from pathlib import Path

import pytest

from tests.side_by_side import GROUPS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("start", GROUPS)
def test_each_group_has_tests(start: str) -> None:
    path, _, name = start.partition("::")
    found = [file for file in ROOT.glob("tests/**/test_*.py") if str(file.relative_to(ROOT)).startswith(path)]
    assert any(f"def {name}" in file.read_text() for file in found)
