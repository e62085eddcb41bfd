"""The coordinator of batches, as ingress replicas start and wake it.

`app` binds it to the ingress, which so knows nothing of `batch`.
"""

from collections.abc import Mapping

from ray.serve.handle import DeploymentHandle

from batch.actor import CoordinatorBell, start_coordinator
from batch.setup import BatchSetup, ModelPlace
from deployments.state.config import ResolvedState
from serve_app.config import ServiceConfig


class ClusterCoordinator:
    """The one coordinator of the cluster, for this configuration; keeps `ingress.Coordinator`."""

    def __init__(self, config: ServiceConfig, state: ResolvedState) -> None:
        self._config = config
        self._state = state
        self._bell = CoordinatorBell()

    def start(self, handles: Mapping[str, DeploymentHandle], tools: Mapping[str, DeploymentHandle]) -> None:
        """Start it, unless it runs with this configuration already.

        `handles` lead to the deployment that runs the lines of each model, by model id.

        Raises:
            ConfigError: something else keeps replacing it.
        """
        start_coordinator(batch_setup(self._config, self._state, handles, tools))

    def wake(self) -> None:
        """Make it look for new batches now; returns at once."""
        self._bell.ring()


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
    return BatchSetup(state, config.batches, tuple(places), config.tools, tool_places)
