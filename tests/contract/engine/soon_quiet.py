"""The scheduler of engines in tests, whose process imports this module."""

from deployments.replica.scheduling.scheduler import AsyncInteractiveFirst


class SoonQuiet(AsyncInteractiveFirst):
    """As in a replica, but the background gets the whole engine after half a second without interactive requests."""

    quiet_s = 0.5
