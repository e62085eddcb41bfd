"""Starts and wakes the batch coordinator for ingress replicas.

`app` binds it to the ingress, so that the ingress does not import `batch`.
"""

from collections.abc import Callable, Mapping

from ray.serve.handle import DeploymentHandle

from batch.actor import CoordinatorWaker, start_coordinator
from batch.setup import BatchSetup, ModelPlace
from deployments.state.config import ResolvedState
from serve_app.config import ServiceConfig


class ClusterCoordinator:
    """Starts the cluster's only batch coordinator with this configuration; implements `ingress.Coordinator`.

    It holds plain values only: when Serve's controller restarts, every ingress replica pickles its arguments.
    """

    def __init__(self, config: ServiceConfig, state: ResolvedState) -> None:
        self._config = config
        self._state = state

    def start(
        self, handles: Mapping[str, DeploymentHandle], tools: Mapping[str, DeploymentHandle]
    ) -> Callable[[], None]:
        """Start the coordinator, unless it already runs with this configuration; return a function that wakes it.

        `handles` has, by model id, the deployment that runs the lines of each model.

        Raises:
            ConfigError: another process keeps replacing it.
        """
        start_coordinator(batch_setup(self._config, self._state, handles, tools))
        return CoordinatorWaker().ring


def batch_setup(
    config: ServiceConfig,
    state: ResolvedState,
    handles: Mapping[str, DeploymentHandle],
    tools: Mapping[str, DeploymentHandle],
) -> BatchSetup:
    """Return the setup of the coordinator and its workers."""
    places = [
        ModelPlace(model, handles[model.id].deployment_name, handles[model.id].app_name, model.safety)
        for model in config.models
    ]
    tool_places = {name: (handle.deployment_name, handle.app_name) for name, handle in tools.items()}
    traces = config.telemetry.traces
    return BatchSetup(
        state, config.batches, tuple(places), config.tools, tool_places, config.moderation, traces, config.clients
    )
