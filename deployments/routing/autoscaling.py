"""Decides how many replicas a model needs, from the requests that run on its replicas; Ray Serve calls it.

Requests travel outside of Serve's handles, so Serve cannot count them; every replica reports its own. Handles
still count the requests that wait for a first replica, which is what wakes a model that is scaled to zero.
"""

import math
from typing import Any, Final

from ray.serve.config import AutoscalingContext

ONGOING: Final = "manta_ongoing_requests"


def desired_replicas(context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
    """Return the number of replicas that brings each to its target of ongoing requests, and no state.

    A running replica without a report may be too busy to report: until all have reported, the number never falls.
    """
    reported = (context.aggregated_metrics or {}).get(ONGOING, {})
    ongoing = sum(reported.values()) + (context.total_queued_requests or 0.0)
    wanted = math.ceil(ongoing / context.config.get_target_ongoing_requests() - 1e-9)
    if any(replica not in reported for replica in context.running_replicas):
        wanted = max(wanted, context.target_num_replicas)
    return max(context.capacity_adjusted_min_replicas, min(context.capacity_adjusted_max_replicas, wanted)), {}
