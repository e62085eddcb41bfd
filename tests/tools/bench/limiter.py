"""What the limiter costs an ingress replica: CPU time of an allowed request, and of one that is refused.

`python -m tests.tools.bench.limiter [--ray]` prints microseconds of CPU per request (identify, admit, reserve, settle)
with a cached key and warm leases, the gatekeeper's share of it, and how many requests one sync carries. Without --ray
the gatekeeper's core answers in the same process, and its time is measured apart; with --ray it is the actor.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from deployments.limits.client.gatekeeper_client import GatekeeperClient
from deployments.limits.contract import Denied, Granted
from deployments.limits.gatekeeper import GatekeeperProcess
from deployments.limits.messages import Identified, SyncReply, SyncRequest, Transport
from deployments.state.config import ResolvedState, StateConfig, resolve_state
from deployments.state.database.connection import connect
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import NewKey

ROUNDS = 5
REQUESTS_PER_ROUND = 20_000
CONCURRENCY = 64


class MeasuredTransport:
    """A gatekeeper in this process whose time is counted apart."""

    def __init__(self, gatekeeper: GatekeeperProcess) -> None:
        self.gatekeeper = gatekeeper
        self.cpu_s = 0.0

    async def identify(self, digest: bytes) -> Identified:
        return self.gatekeeper.identify(digest)

    async def sync(self, request: SyncRequest) -> SyncReply:
        await asyncio.sleep(0.0005)
        begin = time.thread_time()
        reply = self.gatekeeper.sync(request)
        self.cpu_s += time.thread_time() - begin
        return reply

    async def record(self, client_id: str, first: int, rows: list[tuple[object, ...]]) -> tuple[str, int]:
        return self.gatekeeper.record(client_id, first, rows)

    async def refresh_keys(self) -> None:
        self.gatekeeper.refresh_keys()


async def allowed(client: GatekeeperClient, secret: str, num_requests: int) -> None:
    """Run requests as a replica does, a share of them in each of many tasks."""

    async def some(share: int) -> None:
        for index in range(share):
            principal = await client.identify(secret)
            assert principal is not None
            assert isinstance(await client.admit(principal), Granted)
            granted = await client.reserve(principal, 700)
            assert isinstance(granted, Granted)
            client.settle(principal, granted=granted, reserved=700, used=420)
            if index % 10 == 0:
                await asyncio.sleep(0)

    await asyncio.gather(*(some(num_requests // CONCURRENCY) for _ in range(CONCURRENCY)))


async def refused(client: GatekeeperClient, secret: str, num_requests: int) -> None:
    """Run requests of a key whose minute is used up."""
    for index in range(num_requests):
        principal = await client.identify(secret)
        assert principal is not None
        decision = await client.admit(principal)
        assert isinstance(decision, Denied) or index < 10
        if index % 100 == 0:
            await asyncio.sleep(0)


@asynccontextmanager
async def gatekeeper(state: ResolvedState, *, with_ray: bool) -> AsyncIterator[Transport]:
    """A transport to a running gatekeeper."""
    if with_ray:
        import ray

        from deployments.limits.actor import RayTransport, start_gatekeeper, stop_gatekeeper

        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        start_gatekeeper(state)
        yield RayTransport()
        stop_gatekeeper()
        ray.shutdown()
    else:
        local = GatekeeperProcess(state)
        yield MeasuredTransport(local)
        local.stop()


async def measure(*, with_ray: bool) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as directory:
        state = resolve_state(StateConfig(state_dir=Path(directory)))
        database = await connect(state.database_url)
        keys = KeyStore(database, state.pepper)
        _, large = await keys.create(
            NewKey(tier="enterprise", requests_per_minute=10_000_000, tokens_per_minute=10**12)
        )
        _, small = await keys.create(NewKey(tier="free"))
        async with gatekeeper(state, with_ray=with_ray) as transport:
            client = GatekeeperClient(transport, state.pepper)
            await allowed(client, large, 2_000)
            print("round  allowed us  of it gatekeeper us  requests/sync  refused us")
            for number in range(1, ROUNDS + 1):
                syncs, inside = client.counts["syncs"], getattr(transport, "cpu_s", 0.0)
                begin = time.thread_time()
                await allowed(client, large, REQUESTS_PER_ROUND)
                cpu_s = time.thread_time() - begin
                inside = getattr(transport, "cpu_s", 0.0) - inside
                syncs = max(1, client.counts["syncs"] - syncs)
                begin = time.thread_time()
                await refused(client, small, REQUESTS_PER_ROUND // 10)
                refused_us = (time.thread_time() - begin) / (REQUESTS_PER_ROUND // 10) * 1e6
                each_us = 1e6 / REQUESTS_PER_ROUND
                print(
                    f"{number:5}  {cpu_s * each_us:10.2f}  {inside * each_us:19.3f}"
                    f"  {REQUESTS_PER_ROUND / syncs:17.0f}  {refused_us:10.2f}"
                )
            await client.close()
        await database.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ray", action="store_true", help="Measure against the actor.")
    uvloop.run(measure(with_ray=parser.parse_args().ray))
