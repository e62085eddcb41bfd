"""What processes of an engine that runs on processors have glibc do with memory that they free.

Each step of an engine frees as much as it takes, block by block. By its own rules glibc gives that back to the kernel,
or does not, as the blocks happen to lie: the same steps met from 700 to 14,000 page faults each, up to a fifth of
their time. Told to keep it, it is asked for from the kernel once.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_SETTINGS = {  # mallopt(3); a process reads them when it starts.
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),  # Larger blocks come from the kernel, and go back. glibc takes no more.
    "MALLOC_TRIM_THRESHOLD_": str(2**30),  # So much free memory at the end of the heap is kept.
}


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Have processes that are started within the context keep what they free; the operator's own settings stay."""
    ours = {name: value for name, value in _SETTINGS.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
