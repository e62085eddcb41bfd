"""Ray Serve's request router for models: it places each request by its `Choice`.

Serve copies the code of this module into the deployment handle in the ingress. A class defined here would be another
class there, so `Choice`, which the ingress creates, has a module of its own.
"""

import random

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from deployments.routing.placement import Choice, place


class PrefixRouter(RequestRouter):  # type: ignore[misc]  # Ray ships no types for it.
    """Places each request by its `Choice`."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return the one replica to run the request."""
        by_id = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        choice = pending_request.args[0] if pending_request is not None and pending_request.args else None
        if not isinstance(choice, Choice):  # A plain handle call, such as Serve's own.
            return [[random.choice(candidate_replicas)]]  # noqa: S311
        return [[by_id[place(choice, list(by_id))]]]
