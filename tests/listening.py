"""The end of a listening server under test."""

import asyncio


async def stop_listening(server: asyncio.Server) -> None:
    """Listen no more; every connection that was accepted has been handed to the server before this returns.

    `close` alone leaves one open that asyncio has accepted and not begun to serve.
    """
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener)
    for _ in range(4):
        await asyncio.sleep(0)
    server.close()
