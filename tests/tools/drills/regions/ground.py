"""The ground of a drill: two regions with a link between them, a witness, and a load balancer before both."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from deployments.state.database.connection import connect
from tests.tools.drills.cluster import REST_S, START_S, until
from tests.tools.drills.nodes import Node, name_hosts
from tests.tools.drills.regions.balancer import Balancer
from tests.tools.drills.regions.configuration import references_of
from tests.tools.drills.regions.database import PairedDatabase
from tests.tools.drills.regions.link import Link
from tests.tools.drills.regions.places import WITNESS_NUMBER, hosts_of, make_places
from tests.tools.drills.regions.region import Region


class Ground:
    """Two running regions. The first begins with the primary of the database."""

    def __init__(self, folder: Path) -> None:
        """Make the nodes and the link; nothing runs there yet."""
        folder.chmod(0o755)
        self.folder = folder
        self.places = make_places(folder / "certificates")
        name_hosts(folder, hosts_of(self.places))
        os.environ["SSL_CERT_FILE"] = str(next(iter(self.places.values())).authority)  # Which unmodified clients read.
        self.regions = {name: Region(place, folder) for name, place in self.places.items()}
        self.us, self.asia = self.regions.values()
        self.witness = Node("witness", WITNESS_NUMBER, folder / "witness")
        self.link = Link(self.us.node, self.asia.node)
        self.database = PairedDatabase([self.us.node, self.asia.node], self.witness)
        self.balancer: Balancer | None = None

    def start(self) -> None:
        """Start everything; return when both regions serve."""
        self.database.start()
        asyncio.run(self._make_tables())
        for region in self.regions.values():
            region.start_bucket()
        for name, region in self.regions.items():
            region.references = references_of(self.places[name], self.places, self.database.url)
            region.buckets = {one.name: one.bucket_url for one in self.regions.values()}
        for region in self.regions.values():
            region.prepare()
        with ThreadPoolExecutor(2) as threads:
            for begun in [threads.submit(region.start_service) for region in self.regions.values()]:
                begun.result()
        self.balancer = Balancer(self.places, self.folder)
        self.until_at_rest(START_S)

    def until_at_rest(self, timeout_s: float = REST_S) -> None:
        """Return once both regions serve, and the database has its synchronous standby.

        Raises:
            TimeoutError: not in time.
        """
        for region in self.regions.values():
            region.until_at_rest(timeout_s)
        self.database.until_paired(timeout_s)
        assert self.balancer is not None
        self.balancer.until_all_up()

    def other(self, region: Region) -> Region:
        """Return the other region."""
        return self.asia if region is self.us else self.us

    def primary(self) -> Region:
        """Return the region that has the database's primary.

        Raises:
            LookupError: none has it now.
        """
        node = self.database.primary()
        if node is None:
            raise LookupError("no region has the primary of the database")
        return self.regions[node.name]

    def lose(self, region: Region) -> None:
        """Take a region's power away: it is off every network before its processes end."""
        self.link.cut()
        region.lose()

    def restore(self, region: Region) -> None:
        """Start a region again, with what it ran before.

        Its Ray, which has its tables in memory, is given the configuration, as KubeRay does by itself.
        """
        region.restore()
        self.link.heal()
        until(lambda: region.ask("GET") is not None, START_S, "the dashboard")
        region.deploy(region.config())

    def remove(self) -> None:
        """End everything."""
        if self.balancer is not None:
            self.balancer.remove()
        for node in (self.us.node, self.asia.node, self.witness):
            node.remove()
        self.link.remove()

    async def _make_tables(self) -> None:
        await (await connect(self.database.resolved_url)).close()
