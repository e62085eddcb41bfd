import asyncio

import uvloop


def pytest_asyncio_loop_factories(config, item):
    """Replicas run on uvloop, whose transports are not quite those of asyncio."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
