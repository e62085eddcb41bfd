"""Where the regions of a drill are, under which names, and with which certificates."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from tests.certificates import Authority
from tests.tools.drills.apart import OUTSIDE
from tests.tools.drills.cluster import HTTP_PORT

NUMBERS = {"us": 31, "asia": 32}
WITNESS_NUMBER = 33
SERVICE_HOST = "api.manta.test"
"""The name under which clients reach whichever region is well."""
SERVICE_PORTS = {"us": 8441, "asia": 8442}
"""The service's port for the clients near a region: each asks that region first."""


@dataclass(frozen=True)
class Place:
    """A region's place: its node's number and address, and the files of its front's certificate."""

    name: str
    number: int
    certificate: Path
    key: Path
    authority: Path
    context: ssl.SSLContext
    """What a client needs to believe the front."""

    @property
    def host(self) -> str:
        """The name of the region's front."""
        return f"{self.name}.manta.test"

    @property
    def address(self) -> str:
        """The address of the region's node."""
        return f"10.77.0.{self.number}"

    @property
    def url(self) -> str:
        """The base address of the region's front."""
        return f"https://{self.host}:{HTTP_PORT}"


def make_places(folder: Path) -> dict[str, Place]:
    """Return the places by name, with certificates in the folder; one authority signs all of them."""
    authority = Authority()
    folder.mkdir(parents=True, exist_ok=True)
    trusted = folder / "authority.pem"
    trusted.write_text(authority.pem)
    places = {}
    for name, number in NUMBERS.items():
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        places[name] = Place(name, number, certificate, key, trusted, authority.context())
        authority.issue(certificate, key, (places[name].host, SERVICE_HOST))
    return places


def hosts_of(places: dict[str, Place]) -> dict[str, str]:
    """Return the address of each name, as a resolver has them."""
    return {SERVICE_HOST: OUTSIDE, **{place.host: place.address for place in places.values()}}
