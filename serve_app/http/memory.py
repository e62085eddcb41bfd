"""Gives memory back to the kernel after a large body: by itself glibc keeps most of what such a body took."""

import asyncio
import ctypes
import threading

LARGE_BYTES = 4 * 1024 * 1024
"""The size of a body that counts as large. Parsed, it takes several times its bytes."""

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # There is none without glibc.
_one_at_a_time = threading.Lock()


async def give_back_memory() -> None:
    """Return when freed memory has been given back; the event loop goes on meanwhile."""
    if _trim is not None:
        await asyncio.to_thread(_trim_now)


def _trim_now() -> None:
    if _one_at_a_time.acquire(blocking=False):  # Another one does it for all.
        try:
            assert _trim is not None
            _trim(0)
        finally:
            _one_at_a_time.release()
