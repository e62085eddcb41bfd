"""The scheduler of engines in tests, whose process imports this module."""

from deployments.replica.scheduling.scheduler import AsyncInteractiveFirst


class SoonQuiet(AsyncInteractiveFirst):
    """As in a replica, but the background gets the whole engine after half a second without interactive requests.

    What accounts were served is recent for as long as tests run: how much that is does not depend on the machine.
    """

    quiet_s = 0.5
    recent_s = 1000.0
