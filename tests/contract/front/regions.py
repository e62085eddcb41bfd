"""Two regions under test: a front of each over TLS, with small replicas behind it."""

import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from deployments.state.regions import ResolvedRegion
from serve_app.front.certificate import write_copies
from serve_app.front.rendering import ELSEWHERE, backend_of
from serve_app.front.settings import NUM_PROXIES, IngressTls, TlsFiles
from tests.certificates import Authority
from tests.contract.front.running import QUICK, RunningFront, prepared_front
from tests.ports import free_port
from tests.waiting import eventually

TIMINGS = replace(QUICK, leave_after_s=3.0, return_after_s=1.0)
"""A region is left late enough that a replica can come and go meanwhile."""


class Site:
    """The authority of both regions, and the files of their certificates in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.authority_file = folder / "authority.pem"
        self.authority_file.write_text(self.authority.pem)

    def issue(self, region: str, authority: Authority | None = None, hosts: tuple[str, ...] = ("localhost",)) -> None:
        """Write a certificate for a region's front."""
        (authority or self.authority).issue(
            self.folder / f"{region}.crt", self.folder / f"{region}.key", (*hosts, "127.0.0.1")
        )

    def files(self, region: str) -> TlsFiles:
        """Return the files of a region's front."""
        return TlsFiles(str(self.folder / f"{region}.crt"), str(self.folder / f"{region}.key"))

    @property
    def context(self) -> ssl.SSLContext:
        """What clients believe: they ask at 127.0.0.1, the fronts each other at localhost."""
        return self.authority.context()


@asynccontextmanager
async def front_of(
    site: Site,
    region: str,
    port: int,
    others: dict[str, int],
    scheme: str = "https",
    *,
    is_plain: bool = False,
    ingress_tls: IngressTls | None = None,
) -> AsyncIterator[RunningFront]:
    """Prepare the front of a region, without TLS if it is plain; `others` are the ports of the others' fronts."""
    addresses = {name: f"{scheme}://localhost:{port}" for name, port in others.items()}
    settings = ResolvedRegion(region, addresses, site.authority_file)
    tls = None if is_plain else site.files(region)
    fields = {"region": settings, "ingress_tls": ingress_tls, "timings": TIMINGS}
    async with prepared_front(port=port, tls=tls, **fields) as front:
        front.context = site.context
        write_copies(front.settings)
        yield front


@asynccontextmanager
async def two_regions(site: Site) -> AsyncIterator[tuple[RunningFront, RunningFront]]:
    """Run the fronts of `us` and `asia`; each knows the other. They have no replicas yet."""
    ports = free_port(), free_port()
    for region in ("us", "asia"):
        site.issue(region)
    async with (
        front_of(site, "us", ports[0], {"asia": ports[1]}) as us,
        front_of(site, "asia", ports[1], {"us": ports[0]}) as asia,
    ):
        await us.start()
        await asia.start()
        yield us, asia


async def sees(front: RunningFront, region: str) -> None:
    """Wait until every process of a front would send requests to another region."""
    await eventually(lambda: _would_send(front, region, expected=True))


async def sees_no_more(front: RunningFront, region: str) -> None:
    """Wait until no process of a front would send requests to another region."""
    await eventually(lambda: _would_send(front, region, expected=False))


async def _would_send(front: RunningFront, region: str, *, expected: bool) -> bool:
    wanted = re.compile(rf'haproxy_backend_active_servers{{proxy="(?:{backend_of(region)}|{ELSEWHERE})"}} (\d+)')
    counts = []
    for number in range(NUM_PROXIES):
        page = (await front.looks.get(front.statistics(number) + "/metrics?scope=backend")).text
        counts += [int(count) > 0 for count in wanted.findall(page)]
    return len(counts) == 2 * NUM_PROXIES and all(one == expected for one in counts)
