"""Gatekeepers that answer, for tests which run no service."""

import asyncio

import ray

from deployments.limits.actor import RayTransport, start_gatekeeper
from deployments.limits.messages import TransportDown
from deployments.state.config import ResolvedState
from deployments.state.database.connection import connect


async def answering_gatekeeper(state: ResolvedState, name: str) -> ray.actor.ActorHandle:
    """Return the handle of a gatekeeper that has read its database and answers.

    On a busy machine its first answer may take longer than requests wait for one.
    """
    await (await connect(state.database_url)).close()  # It finds its tables.
    handle = await asyncio.to_thread(start_gatekeeper, state, name)
    transport = RayTransport(name)
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    await transport.refresh_keys()
                    return handle
                except TransportDown:
                    await asyncio.sleep(0.1)
    finally:
        transport.close()
