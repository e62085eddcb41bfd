"""A gatekeeper without its actor: the class in this process, killed by taking everything from it but its files."""

import asyncio
from dataclasses import replace
from pathlib import Path

from deployments.limits.gatekeeper import Gatekeeper
from deployments.limits.messages import Exchange, Exchanged, Hello, Identified
from deployments.state.config import LimiterConfig, ResolvedState, StateConfig, resolve_state


def resolved(database_url: str, state_dir: Path) -> ResolvedState:
    limiter = LimiterConfig(key_poll_interval_s=0.05)
    config = StateConfig(state_dir=state_dir, limiter=limiter, usage_flush_interval_s=0.1)
    return replace(resolve_state(config, {}), database_url=database_url)


def kill(gatekeeper: Gatekeeper) -> None:
    """End it without letting it save anything."""
    gatekeeper._background.cancel()
    gatekeeper._background.run(gatekeeper._database.close())
    gatekeeper._background.stop()


class DirectTransport:
    """Calls a gatekeeper of this process, off the event loop as an actor would be."""

    def __init__(self, gatekeeper: Gatekeeper) -> None:
        self.gatekeeper = gatekeeper

    async def hello(self) -> Hello:
        return await asyncio.to_thread(self.gatekeeper.hello)

    async def identify(self, digest: bytes) -> Identified:
        return await asyncio.to_thread(self.gatekeeper.identify, digest)

    async def exchange(self, exchange: Exchange) -> Exchanged:
        return await asyncio.to_thread(self.gatekeeper.exchange, exchange)

    async def record(self, client_id: str, first: int, rows: list[tuple[object, ...]]) -> tuple[str, int]:
        return await asyncio.to_thread(self.gatekeeper.record, client_id, first, rows)

    async def refresh_keys(self) -> None:
        await asyncio.to_thread(self.gatekeeper.refresh_keys)
