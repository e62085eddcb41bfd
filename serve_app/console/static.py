"""The console's own scripts, styles and libraries: read once, compressed once, named by their content.

A path that names the content's digest is kept by browsers for good.
"""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from serve_app.errors.api import UnknownUrl

PATH = "/console/static/{digest}/{name}"
_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, as it is and compressed."""

    digest: str
    media_type: str
    content: bytes
    compressed: bytes


@cache
def _assets() -> dict[str, Asset]:
    found = {}
    for path in sorted(_FOLDER.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:16]
            found[path.name] = Asset(digest, _TYPES[path.suffix], content, gzip.compress(content, 9, mtime=0))
    return found


def address_of(name: str) -> str:
    """Return the path of a file.

    Raises:
        KeyError: there is none.
    """
    return PATH.format(digest=_assets()[name].digest, name=name)


async def show_asset(request: Request) -> Response:
    """Return a file of the console."""
    asset = _assets().get(request.path_params["name"])
    if asset is None or asset.digest != request.path_params["digest"]:
        raise UnknownUrl(request.method, request.url.path)
    headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.compressed, headers={**headers, "content-encoding": "gzip"}, media_type=asset.media_type)
    return Response(asset.content, headers=headers, media_type=asset.media_type)
