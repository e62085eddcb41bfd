"""Steps of requests: noted where a list is open, in tasks too, and nowhere else."""

import asyncio

import pytest

from deployments.steps import note, open_steps, step


async def test_steps_are_noted_in_tasks_that_a_request_starts():
    steps = open_steps()

    async def work():
        with step("inner", {"n": 1}):
            await asyncio.sleep(0)

    with step("outer"):
        await asyncio.create_task(work())
    note("late", 1.0, 2.0)
    assert [(one.name, one.error) for one in steps] == [("outer", None), ("inner", None), ("late", None)]
    outer, inner, _ = steps
    assert outer.began <= inner.began <= inner.ended <= outer.ended
    assert inner.attributes == {"n": 1}


async def test_requests_do_not_see_each_others_steps():
    async def request(name):
        steps = open_steps()
        for _ in range(3):
            with step(name):
                await asyncio.sleep(0)
        return {one.name for one in steps}

    assert await asyncio.gather(request("a"), request("b")) == [{"a"}, {"b"}]


async def test_an_error_ends_a_step_with_its_class():
    steps = open_steps()
    with pytest.raises(ValueError), step("bad"):
        raise ValueError("content")
    assert [(one.name, one.error) for one in steps] == [("bad", "ValueError")]


def test_nothing_is_noted_where_no_list_is_open():
    with step("nowhere") as noted:
        assert noted is None
    note("nowhere", 0.0, 1.0)
