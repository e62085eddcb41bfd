"""The coordinator of batches, as ingress replicas start and wake it.

`app` binds it to the ingress, which so knows nothing of `batch`.
"""

from collections.abc import Callable, Mapping

from ray.serve.handle import DeploymentHandle

from batch.actor import CoordinatorWaker, start_coordinator
from batch.setup import BatchSetup, ModelPlace
from deployments.state.config import ResolvedState
from serve_app.config import ServiceConfig


class ClusterCoordinator:
    """The one coordinator of the cluster, for this configuration; keeps `ingress.Coordinator`.

    It holds values alone: a Serve controller that restarts has every ingress replica pickle what it was made with.
    """

    def __init__(self, config: ServiceConfig, state: ResolvedState) -> None:
        self._config = config
        self._state = state

    def start(
        self, handles: Mapping[str, DeploymentHandle], tools: Mapping[str, DeploymentHandle]
    ) -> Callable[[], None]:
        """Start it, unless it runs with this configuration already; return what makes it look for new batches now.

        `handles` lead to the deployment that runs the lines of each model, by model id.

        Raises:
            ConfigError: something else keeps replacing it.
        """
        start_coordinator(batch_setup(self._config, self._state, handles, tools))
        return CoordinatorWaker().ring


def batch_setup(
    config: ServiceConfig,
    state: ResolvedState,
    handles: Mapping[str, DeploymentHandle],
    tools: Mapping[str, DeploymentHandle],
) -> BatchSetup:
    """Return what the processes that work on batches are made from."""
    places = [
        ModelPlace(model, handles[model.id].deployment_name, handles[model.id].app_name, model.safety)
        for model in config.models
    ]
    tool_places = {name: (handle.deployment_name, handle.app_name) for name, handle in tools.items()}
    traces = config.telemetry.traces
    return BatchSetup(state, config.batches, tuple(places), config.tools, tool_places, config.moderation, traces)
