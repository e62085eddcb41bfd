"""Whether the files of a model or an adapter are where its `source` says, without fetching or building anything."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from deployments.models.demo.sources import DEMO_MODELS, resolve_source

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_PATHS = ("/", "./", "../")
_HUB_TIMEOUT_S = 5.0
_NOT_FETCHED = ("http", "https")


class SourceMissing(ValueError):
    """There is no such model or adapter; the message says what to change."""


def check_source(source: str, needed: str = "config.json") -> None:
    """Check a source of this machine, or the form of one elsewhere. `needed` is a file that the folder must have.

    Raises:
        SourceMissing: there is no such model or adapter.
    """
    kind, _, name = source.partition(":")
    if kind in ("demo", "package"):
        if kind == "package" or name not in DEMO_MODELS:  # Those are built at their first use.
            try:
                resolve_source(source)
            except ValueError as error:
                raise SourceMissing(str(error)) from None
    elif "://" in source:
        if urlsplit(source).scheme in _NOT_FETCHED:
            raise SourceMissing("models are not read from web addresses: give a hub id, a path, s3:// or gs://")
    elif source.startswith("~"):
        raise SourceMissing(f"write the whole path: {Path(source).expanduser()}")
    elif os.path.exists(source) or source.startswith(_PATHS):
        _check_path(Path(source), needed)
    elif not _HUB_ID.fullmatch(source):
        raise SourceMissing(f'"{source}" is neither a path on this machine nor a hub id, such as Qwen/Qwen3-8B')


def is_on_hub(source: str) -> bool:
    """Return whether a source is the id of a repository on the hub."""
    return _HUB_ID.fullmatch(source) is not None and not os.path.exists(source)


def is_cached(hub_id: str) -> bool:
    """Return whether the hub's cache on this machine has a repository, perhaps not all of its files."""
    from huggingface_hub.constants import HF_HUB_CACHE

    snapshots = Path(HF_HUB_CACHE) / f"models--{hub_id.replace('/', '--')}" / "snapshots"
    return snapshots.is_dir() and any(snapshots.iterdir())


def find_on_hub(hub_id: str) -> str | None:
    """Ask the hub for a repository; return what keeps it from being downloaded and what to do, None if nothing does."""
    from httpx2 import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        HfApi().model_info(hub_id, timeout=_HUB_TIMEOUT_S)
    except GatedRepoError:
        return f"{hub_id} is gated: accept its terms on the hub, and set HF_TOKEN"
    except RepositoryNotFoundError:
        return f"the hub has no {hub_id}, or it is private: look at the name, or set HF_TOKEN"
    except (HTTPError, OSError, RuntimeError) as error:
        return (
            f"{hub_id} is not in the cache, and the hub cannot be reached ({type(error).__name__}). Download it where "
            f"there is a network, with `hf download {hub_id}`, and give the folder as its source"
        )
    return None


def may_download(environ: Mapping[str, str]) -> bool:
    """Return whether a process with this environment fetches from the hub what its cache does not have."""
    return environ.get("HF_HUB_OFFLINE", "").upper() not in ("1", "ON", "YES", "TRUE")


def _check_path(path: Path, needed: str) -> None:
    if not path.exists():
        raise SourceMissing(f"there is no {path} on this machine")
    if path.is_dir() and not (path / needed).is_file():
        raise SourceMissing(f"the folder {path} has no {needed}")
