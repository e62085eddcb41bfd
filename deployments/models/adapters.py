"""LoRA adapters: their sources in the configuration, and how a replica gets their files.

A client's name for an adapter is only looked up among those of the configuration; it never becomes a path.
"""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import obstore
from obstore.store import from_url
from pydantic import Field

from deployments.config import Section
from deployments.models.demo.sources import model_cache_dir

AdapterName = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]

_BUCKETS = ("s3", "gs")
_NEEDED = "adapter_config.json"
_SUFFIXES = (_NEEDED, ".safetensors")


class AdapterConfig(Section):
    """A LoRA adapter of a model, which clients name MODEL:ADAPTER.

    Args:
        source: a directory, a bucket's address, or a hub id, of files as PEFT writes them; by default the folder of
            the adapter's name in the model's `adapters_from`.
        accounts: the accounts that see the adapter; without it all do.
    """

    source: str | None = Field(default=None, min_length=1)
    accounts: tuple[str, ...] | None = None


def fetch_adapter(source: str) -> Path:
    """Return the directory of an adapter's files, and fetch them first from a bucket or the hub.

    Raises:
        FileNotFoundError: there is no adapter.
        Exception: those of the bucket's or the hub's client.
    """
    if urlsplit(source).scheme in _BUCKETS:
        return _fetch_from_bucket(source)
    path = Path(source).expanduser()
    if not path.is_dir() and not path.is_absolute() and not source.startswith(("./", "../")):
        from huggingface_hub import snapshot_download

        path = Path(snapshot_download(source, allow_patterns=[f"*{suffix}" for suffix in _SUFFIXES]))
    if not (path / _NEEDED).is_file():
        raise FileNotFoundError(f"{path} has no {_NEEDED}.")
    return path.absolute()


def _fetch_from_bucket(url: str, **options: Any) -> Path:
    """Return a directory with the files directly below a bucket's address.

    Its name depends on the files, so that changed files are fetched again. It appears complete or not at all.
    """
    url = url.rstrip("/")
    store = from_url(url, client_options={"allow_http": True}, **options)
    files = [one for page in obstore.list(store) for one in page]
    files = [one for one in files if "/" not in one["path"] and one["path"].endswith(_SUFFIXES)]
    if not any(one["path"] == _NEEDED for one in files):
        raise FileNotFoundError(f"There is no {_NEEDED} below {url}.")
    state = sorted((one["path"], one["size"], str(one["last_modified"])) for one in files)
    target = model_cache_dir().parent / "adapters" / hashlib.sha256(repr((url, state)).encode()).hexdigest()[:32]
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for one in files:
            with open(scratch / one["path"], "wb") as file:
                for piece in obstore.get(store, one["path"]):
                    file.write(piece)
        os.rename(scratch, target)
    except OSError:
        if not target.is_dir():  # Otherwise another process fetched the same first.
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target
