"""One Ray in this process for the actors that are tested without a service."""

from collections.abc import Iterator

import pytest
import ray

from tests.starts import started


@pytest.fixture(scope="package")
def ray_cluster() -> Iterator[None]:
    """A Ray cluster in this process, for actors without a service.

    Started up to five times, as `manta serve` does: a raylet whose agents take longer than 15 s ends itself.
    """
    for num_left in reversed(range(5)):
        try:
            started("bare Rays")
            ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
            break
        except Exception:
            ray.shutdown(wait_for_processes=True)
            if not num_left:
                raise
    yield
    ray.shutdown(wait_for_processes=True)  # Else a process that takes over a second to die stays as a zombie.
