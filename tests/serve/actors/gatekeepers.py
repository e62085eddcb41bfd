"""Gatekeepers that answer, for tests which run no service."""

import asyncio

import ray

from deployments.limits.actor import RayTransport, start_gatekeeper
from deployments.limits.messages import TransportDown
from deployments.state.config import ResolvedState
from tests.patience import PATIENT
from tests.waiting import eventually


async def answering_gatekeeper(state: ResolvedState, name: str) -> ray.actor.ActorHandle:
    """Return the handle of a gatekeeper that has read its database and answers."""
    handle = await asyncio.to_thread(start_gatekeeper, state, name)
    transport = RayTransport(name, PATIENT)

    async def answers() -> bool:
        try:
            await transport.refresh_keys()
        except TransportDown:
            return False
        return True

    await eventually(answers, 60)
    return handle
