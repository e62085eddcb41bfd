"""What every gatekeeper keeps: the same tests against the twin and against the real client over the real core."""

import asyncio
from dataclasses import dataclass

import pytest

from deployments.limits.contract import Denied, Gatekeeper, Granted
from deployments.state.identity.principal import Principal
from tests.twins.gatekeeper import MemoryGatekeeper, TestClock
from tests.unit.limits.memory import World, principal_of, secret_of

# The real client's leases count from the end of their validity.
LEASE_S = 0.4


@dataclass
class Subject:
    gatekeeper: Gatekeeper
    clock: TestClock
    world: World | MemoryGatekeeper

    def go_away(self) -> None:
        if isinstance(self.world, World):
            self.world.is_down = True
        else:
            self.world.unavailable = True

    async def settled(self) -> None:
        """Let what was settled arrive."""
        if isinstance(self.world, World):
            self.clock.advance(0.1)
            await self.gatekeeper.tick()  # type: ignore[attr-defined]


@pytest.fixture(params=["twin", "client"])
def subject(request: pytest.FixtureRequest) -> Subject:
    principals = [
        principal_of("small"),
        principal_of("large", 600, 5_000_000),
        principal_of("ends", expires_at=1_700_000_030.0),
    ]
    if request.param == "twin":
        clock = TestClock()
        twin = MemoryGatekeeper({secret_of(one.key_id): one for one in principals}, clock)
        return Subject(twin, clock, twin)
    world = World(*principals)
    return Subject(world.client(), world.clock, world)


async def identified(subject: Subject, name: str) -> Principal:
    principal = await subject.gatekeeper.identify(secret_of(name))
    assert principal is not None
    return principal


async def test_a_known_secret_names_its_holder(subject: Subject) -> None:
    assert await identified(subject, "small") == principal_of("small")
    assert await identified(subject, "small") == principal_of("small")


@pytest.mark.parametrize(
    "secret",
    [
        "sk-manta-nobody",
        "",
        "small",
        "' OR 1=1 --",
        "sk-manta-' OR '1'='1",
        "sk-manta-" + "x" * 100_000,
        "sk-manta-\x00\xff",
        "sk-manta-\ud800",
        "sk-manta-é",
    ],
)
async def test_what_is_no_key_names_nobody(subject: Subject, secret: str) -> None:
    assert await subject.gatekeeper.identify(secret) is None


async def test_an_expired_key_names_nobody(subject: Subject) -> None:
    assert await subject.gatekeeper.identify(secret_of("ends")) is not None
    subject.clock.advance(30)
    assert await subject.gatekeeper.identify(secret_of("ends")) is None


async def test_requests_are_admitted_up_to_the_limit_and_again_after_the_wait(subject: Subject) -> None:
    principal = await identified(subject, "small")
    for _ in range(10):
        assert isinstance(await subject.gatekeeper.admit(principal), Granted)
    denied = await subject.gatekeeper.admit(principal)
    assert isinstance(denied, Denied)
    assert (denied.dimension, denied.limit, denied.used, denied.requested) == ("requests", 10, 10, 1)
    assert denied.retry_after_s is not None
    assert 60 <= denied.retry_after_s <= 60 + LEASE_S + 1e-6
    subject.clock.advance(denied.retry_after_s - 0.01)
    still = await subject.gatekeeper.admit(principal)
    assert isinstance(still, Denied)
    assert still.retry_after_s == pytest.approx(0.01, abs=1e-5)
    subject.clock.advance(still.retry_after_s)
    assert isinstance(await subject.gatekeeper.admit(principal), Granted)


async def test_tokens_are_held_and_given_back_when_settled(subject: Subject) -> None:
    principal = await identified(subject, "small")
    granted = await subject.gatekeeper.reserve(principal, 39_000)
    assert isinstance(granted, Granted)
    denied = await subject.gatekeeper.reserve(principal, 2_000)
    assert isinstance(denied, Denied)
    assert (denied.dimension, denied.limit, denied.used, denied.requested) == ("tokens", 40_000, 39_000, 2_000)
    subject.gatekeeper.settle(principal, granted=granted, reserved=39_000, used=100)
    assert subject.gatekeeper.quota(principal).remaining_tokens == 39_900
    assert isinstance(await subject.gatekeeper.reserve(principal, 39_900), Granted)
    assert isinstance(await subject.gatekeeper.reserve(principal, 1), Denied)


async def test_tokens_used_beyond_the_reservation_count(subject: Subject) -> None:
    principal = await identified(subject, "small")
    granted = await subject.gatekeeper.reserve(principal, 10)
    assert isinstance(granted, Granted)
    subject.gatekeeper.settle(principal, granted=granted, reserved=10, used=39_999)
    await subject.settled()
    assert isinstance(await subject.gatekeeper.reserve(principal, 2), Denied)
    assert isinstance(await subject.gatekeeper.reserve(principal, 1), Granted)


async def test_a_refund_after_the_minute_changes_nothing(subject: Subject) -> None:
    principal = await identified(subject, "small")
    granted = await subject.gatekeeper.reserve(principal, 40_000)
    assert isinstance(granted, Granted)
    subject.clock.advance(61)
    assert isinstance(await subject.gatekeeper.reserve(principal, 40_000), Granted)
    subject.gatekeeper.settle(principal, granted=granted, reserved=40_000, used=1)
    await subject.settled()
    assert isinstance(await subject.gatekeeper.reserve(principal, 1), Denied)


async def test_more_than_the_limit_never_fits(subject: Subject) -> None:
    principal = await identified(subject, "small")
    denied = await subject.gatekeeper.reserve(principal, 40_001)
    assert denied == Denied("tokens", 40_000, 0, 40_001, None)


async def test_nothing_is_denied_to_a_request_for_no_tokens(subject: Subject) -> None:
    principal = await identified(subject, "small")
    assert isinstance(await subject.gatekeeper.reserve(principal, 40_000), Granted)
    assert isinstance(await subject.gatekeeper.reserve(principal, 0), Granted)


async def test_the_quota_counts_down_and_fills_up_again(subject: Subject) -> None:
    principal = await identified(subject, "small")
    fresh = subject.gatekeeper.quota(principal)
    assert (fresh.limit_requests, fresh.remaining_requests, fresh.reset_requests_s) == (10, 10, 0.0)
    assert (fresh.limit_tokens, fresh.remaining_tokens, fresh.reset_tokens_s) == (40_000, 40_000, 0.0)
    await subject.gatekeeper.admit(principal)
    await subject.gatekeeper.reserve(principal, 1_000)
    used = subject.gatekeeper.quota(principal)
    assert (used.remaining_requests, used.remaining_tokens) == (9, 39_000)
    assert 60 <= used.reset_requests_s <= 60 + LEASE_S + 1e-6
    assert 60 <= used.reset_tokens_s <= 60 + LEASE_S + 1e-6
    subject.clock.advance(60 + LEASE_S + 0.01)
    later = subject.gatekeeper.quota(principal)
    assert (later.remaining_requests, later.reset_requests_s) == (10, 0.0)
    assert (later.remaining_tokens, later.reset_tokens_s) == (40_000, 0.0)


async def test_concurrent_requests_get_exactly_the_limit(subject: Subject) -> None:
    principal = await identified(subject, "large")
    decisions = await asyncio.gather(*(subject.gatekeeper.admit(principal) for _ in range(1_500)))
    assert sum(isinstance(one, Granted) for one in decisions) == 600


async def test_keys_do_not_share_their_minute(subject: Subject) -> None:
    small, large = await identified(subject, "small"), await identified(subject, "large")
    for _ in range(11):
        await subject.gatekeeper.admit(small)
    assert isinstance(await subject.gatekeeper.admit(large), Granted)


async def test_keys_can_be_checked_until_the_gatekeeper_is_away(subject: Subject) -> None:
    assert await subject.gatekeeper.can_check_keys()
    subject.go_away()
    assert not await subject.gatekeeper.can_check_keys()


async def test_a_key_that_was_seen_is_known_while_the_gatekeeper_is_away(subject: Subject) -> None:
    await identified(subject, "small")
    subject.go_away()
    subject.clock.advance(5)
    assert await subject.gatekeeper.identify(secret_of("small")) == principal_of("small")
