"""Ways to ask: none is trained and held out at once, and those held out are made of trained parts."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.tools.demo_model import built_in, facts, manta, memory, structured, talk, tasks, tools, world
from tests.tools.demo_model.phrasings import cross
from tests.tools.demo_model.words import Draw


def lists() -> Iterator[tuple[str, ...]]:
    for module in (built_in, facts, manta, memory, structured, talk, tasks, tools, world):
        for value in vars(module).values():
            if isinstance(value, tuple) and value and all(isinstance(one, str) for one in value):
                yield value
    for kind in tools.KINDS:
        yield from (kind.asks, kind.several)
    for thing in memory.MEMORIES:
        yield from (thing.tell, thing.ask)


def test_no_way_to_ask_is_there_twice() -> None:
    repeated = [one for phrasings in lists() for one, count in Counter(phrasings).items() if count > 1]
    assert repeated == []


@pytest.mark.parametrize("num_frames", [3, 5, 7])
def test_each_part_of_what_is_held_out_is_trained(num_frames: int) -> None:
    frames = tuple(f"Frame {frame} {{s}}." for frame in range(num_frames))
    parts = tuple(f"part {part}" for part in range(8))
    trained, held_out = (
        {draw.phrase(cross(frames, parts)) for _ in range(2000)}
        for draw in (Draw(1, held_out=False), Draw(1, held_out=True))
    )
    assert len(trained) + len(held_out) == num_frames * len(parts)
    for frame in frames:
        assert all(any(frame.removesuffix("{s}.") in one for one in part) for part in (trained, held_out))
    assert all(any(f"{part}." in one for one in trained) for part in parts)
