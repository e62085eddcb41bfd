"""The route that a client probably meant by a URL that does not exist."""

from collections.abc import Sequence
from difflib import SequenceMatcher

from starlette.routing import Route

from serve_app.errors.api import shorten
from serve_app.errors.nearest import LIKELY, closest_to

_MAX_CHARS = 64


def nearest_route(method: str, path: str, routes: Sequence[Route]) -> str:
    """Return the method and the path of the closest route, with the client's own ids; "" if none is close.

    Routes of the same method come first. A long path has no closest route: to look for one would cost too much.
    """
    if len(path) > _MAX_CHARS:
        return ""
    given = _parts_of(path)
    wanted = "GET" if method == "HEAD" else method
    same = [route for route in routes if wanted in (route.methods or ())]
    for among in (same, routes):
        if (route := _closest(given, among)) is not None:
            shown = wanted if among is same else min(route.methods or ())
            return f"{shown} {shorten(_fill(route.path, path))}"
    return ""


def _closest(given: list[str], routes: Sequence[Route]) -> Route | None:
    """Return the route whose fixed parts are closest. One with ids has as many parts as the path."""
    by_ids: dict[tuple[int, ...], dict[str, Route]] = {}
    for route in routes:
        parts = _parts_of(route.path)
        ids = tuple(number for number, part in enumerate(parts) if _is_id(part))
        if not ids or len(parts) == len(given):
            by_ids.setdefault(ids, {}).setdefault(_fixed(parts, ids), route)
    found: list[tuple[float, Route]] = []
    for ids, known in by_ids.items():
        wanted = _fixed(given, ids)
        if (closest := closest_to(wanted, known, LIKELY)) is not None:
            found.append((SequenceMatcher(None, wanted, closest).ratio(), known[closest]))
    return max(found, key=lambda one: one[0])[1] if found else None


def _parts_of(path: str) -> list[str]:
    """Return the parts of a path below /v1."""
    return path.strip("/").removeprefix("v1/").split("/")


def _is_id(part: str) -> bool:
    return part.startswith("{")


def _fixed(parts: Sequence[str], ids: tuple[int, ...]) -> str:
    return "/".join("*" if number in ids else part for number, part in enumerate(parts))


def _fill(template: str, path: str) -> str:
    """Return the path of a route with the ids of another path."""
    ids = dict(enumerate(_parts_of(path)))
    parts = [ids[number] if _is_id(part) else part for number, part in enumerate(_parts_of(template))]
    return ("/v1/" if template.startswith("/v1/") else "/") + "/".join(parts)
