"""The same service under the names of its routes: chat completions, and responses that are stored or not."""

from dataclasses import replace

from tests.tools.bench.lineup import Lineup
from tests.tools.bench.peers import Peer

ROUTES = {
    "chat": {"path": "/v1/chat/completions"},
    "responses, not stored": {"path": "/v1/responses", "is_stored": False},
    "responses, stored": {"path": "/v1/responses", "is_stored": True},
}


class Routes:
    """A lineup whose peers are the routes of one service; ratios are to the chat route."""

    restart = False

    def __init__(self, lineup: Lineup) -> None:
        self.labels = [*ROUTES]
        self._lineup = lineup

    def use(self, label: str) -> Peer:
        """Return the service, asked over one of its routes."""
        peer = self._lineup.use(self._lineup.labels[0])
        return replace(peer, label=label, target=replace(peer.target, **ROUTES[label]))
