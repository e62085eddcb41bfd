"""How long work is retried while a store is away or content is lost, and how often."""

from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from batch import stores
from batch.input import BatchInput
from batch.stores import retried, retry_outages
from deployments.state.batches.ledger import BatchState, Status
from deployments.state.objects.store import ContentLost, StoreUnavailable


class Store:
    """Work that fails so often, and how long was waited between."""

    def __init__(self, *failures: Exception) -> None:
        self.waits: list[float] = []
        self._failures = list(failures)

    async def work(self) -> str:
        if self._failures:
            raise self._failures.pop()
        return "done"

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


async def test_a_store_is_retried_with_what_it_was_called_with() -> None:
    class Counter:
        label = "counter"
        num_tries = 0

        async def add(self, first: int, *, second: int) -> int:
            self.num_tries += 1
            if self.num_tries == 1:
                raise StoreUnavailable("away")
            return first + second

        def look(self) -> int:
            return self.num_tries

    counter = retried(Counter())
    assert await counter.add(1, second=2) == 3
    assert (counter.look(), counter.label) == (2, "counter")


async def test_an_outage_of_hours_is_waited_for_and_looked_at_every_five_seconds() -> None:
    store = Store(*[StoreUnavailable("away")] * 5000)
    assert await retry_outages("Trying", store.work, store.sleep) == "done"
    assert len(store.waits) == 5000
    assert store.waits == sorted(store.waits)
    assert (store.waits[0], store.waits[-1]) == (0.4, 5.0)


@pytest.mark.parametrize(("status", "bound_s"), [("in_progress", 900.0), ("cancelling", 30.0)])
async def test_an_input_that_is_lost_is_waited_for_as_well_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, status: Status, bound_s: float
) -> None:
    now = 0.0
    monkeypatch.setattr(stores.time, "monotonic", lambda: now)
    store = Store(*[ContentLost("gone")] * 5000)

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    async def load_state() -> BatchState:
        return BatchState(status, created_at=0.0, expires_at=86_400.0)

    no_stores = SimpleNamespace(files=None, work=None)
    lost = BatchInput(*cast(Any, [no_stores, None, None, None]), load_state)
    with pytest.raises(ContentLost):
        await retry_outages("Trying", store.work, sleep, lost_after_s=lost.lost_after_s)
    assert bound_s <= now <= bound_s + 5.0


async def test_only_losses_in_a_row_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores.time, "monotonic", count(0.0, 1000.0).__next__)
    store = Store(ContentLost("gone"), StoreUnavailable("away"), ContentLost("gone"))
    assert await retry_outages("Trying", store.work, store.sleep) == "done"
    with pytest.raises(ContentLost):
        await retry_outages("Trying", Store(ContentLost("gone"), ContentLost("gone")).work, store.sleep)


async def test_what_is_lost_is_told_at_once_where_nobody_waits_for_it() -> None:
    store = Store(ContentLost("gone"))
    with pytest.raises(ContentLost):
        await retry_outages("Trying", store.work, store.sleep, lost_after_s=0)
    assert store.waits == []
