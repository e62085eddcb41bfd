"""The settings of stored state: its directory, database, object store, secrets and tiers.

`StateConfig` is the section of the deployment's YAML. `resolve_state` turns it into values on the machine that builds
the application: it reads environment variables and creates the first secrets.
"""

import base64
import binascii
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from deployments.channel.tls import TlsFiles
from deployments.config import ConfigError, EnvReference, FileReference, Section, follow
from deployments.patience import USUAL, Patience
from deployments.state.database.dsn import has_password, one_form
from deployments.state.identity.principal import Retention, is_long
from deployments.state.identity.tiers import Tiers
from deployments.state.objects.config import ObjectStoreConfig, ResolvedObjectStore, resolve_object_store
from deployments.state.regions import ResolvedRegion
from deployments.state.regions.config import RegionConfig, resolve_region

MIN_PEPPER_BYTES = 32
MASTER_KEY_BYTES = 32
MIB = 1024 * 1024
DAY_S = 86_400.0

_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}

_Days = Annotated[float, Field(gt=0, le=3650)]


class FilesConfig(Section):
    """Storage limits and lifetimes of files. Everything expires.

    Args:
        max_file_bytes: the largest file.
        max_batch_file_bytes: the largest file with the purpose `batch`.
        max_upload_bytes: the largest file that is uploaded in parts.
        max_account_bytes: how much the files of one account may hold together.
        lifetime_days: how long a file without an expiry of its own lives.
        ephemeral_output_days: how long the output of a batch lives under the retention policy `ephemeral`.
        stored_output_days: the same under `stored`.
    """

    max_file_bytes: Annotated[int, Field(ge=1024)] = 512 * MIB
    max_batch_file_bytes: Annotated[int, Field(ge=1024)] = 200 * MIB
    max_upload_bytes: Annotated[int, Field(ge=1024)] = 8 * 1024 * MIB
    max_account_bytes: Annotated[int, Field(ge=1024)] = 100 * 1024 * MIB
    lifetime_days: _Days = 30
    ephemeral_output_days: _Days = 7
    stored_output_days: _Days = 30

    def max_bytes(self, purpose: str | None) -> int:
        """Return the size limit of a file; the purpose is None if it is not known yet."""
        return self.max_batch_file_bytes if purpose == "batch" else self.max_file_bytes

    def max_total_bytes(self, purpose: str) -> int:
        """Return the size limit of a file that is uploaded in parts."""
        return self.max_batch_file_bytes if purpose == "batch" else self.max_upload_bytes

    def lifetime_s(self, purpose: str, retention: Retention, asked_s: float | None) -> float:
        """Return the lifetime of an uploaded file in seconds: `asked_s`, for inputs of batches at most the policy's."""
        usual_s = self.lifetime_days * DAY_S
        if purpose == "batch" and (kept_s := input_kept_s(retention)) is not None:
            usual_s = min(usual_s, kept_s)
            return usual_s if asked_s is None else min(usual_s, asked_s)
        return usual_s if asked_s is None else asked_s

    def output_lifetime_s(self, retention: Retention, asked_s: float | None) -> float:
        """Return the lifetime of a batch's output in seconds: `asked_s`, at most what the retention policy allows."""
        days = self.stored_output_days if is_long(retention) else self.ephemeral_output_days
        return min(days * DAY_S, DAY_S * days if asked_s is None else asked_s)


def input_kept_s(retention: Retention) -> float | None:
    """Return how long the input of a batch is kept after its end; None if only its own expiry counts."""
    return None if is_long(retention) else DAY_S


class StateConfig(Section):
    """Where state is stored, and the limits of the tiers.

    Args:
        state_dir: the directory of the database, the secrets and the files that have no other place.
        database_url: SQLite or PostgreSQL, a reference where it carries a password; several servers as
            HOST:PORT,HOST:PORT. By default a SQLite file in the state directory.
        pepper: the secret under which API keys are digested, 32 bytes or more. By default a file in the state
            directory.
        master_key: wraps the keys of all stored content, 32 random bytes in hexadecimal or base64. Losing it loses the
            content. By default a file in the state directory.
        sweep_interval_s: how often expired content is deleted.
        request_log_days: how long the request log is kept.
        disk_reserve_bytes: what a local disk of the database or the objects keeps free; below it clients store nothing.
            By default a twentieth of the disk, and a gibibyte at most.
    """

    retired: ClassVar[Mapping[str, str]] = {
        "limiter": "the limiter's times are fixed now; remove the section.",
        "usage_flush_interval_s": "request records are written every second; remove it.",
    }

    state_dir: Path | EnvReference = EnvReference(env="MANTA_STATE_DIR", default=".manta")
    database_url: str | EnvReference | FileReference | None = None
    pepper: EnvReference | FileReference | None = None
    master_key: EnvReference | FileReference | None = None
    object_store: ObjectStoreConfig = ObjectStoreConfig()
    files: FilesConfig = FilesConfig()
    tiers: Tiers = Tiers()
    sweep_interval_s: Annotated[float, Field(ge=1, le=3600)] = 60.0
    request_log_days: Annotated[int, Field(ge=1, le=3650)] = 30
    disk_reserve_bytes: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _keep_passwords_out(self) -> Self:
        if isinstance(self.database_url, str) and has_password(
            parse_database_url(self.database_url).partition("://")[2]
        ):
            raise ValueError("database_url carries a password: move the URL into a file or an environment variable")
        return self


@dataclass(frozen=True)
class ResolvedState:
    """A `StateConfig` with its references followed; `state_dir` is absolute. Secrets stay out of its repr.

    `region` is None if there is only one region, `tls` if nothing is encrypted inside the cluster.
    """

    config: StateConfig
    state_dir: Path
    database_url: str = field(repr=False)
    pepper: bytes = field(repr=False)
    master_key: bytes = field(repr=False)
    object_store: ResolvedObjectStore
    region: ResolvedRegion | None = None
    tls: TlsFiles | None = None
    patience: Patience = USUAL

    @property
    def region_name(self) -> str:
        """The name of this region in rows: empty if there is only one."""
        return "" if self.region is None else self.region.name


def resolve_state(
    config: StateConfig,
    environ: Mapping[str, str] | None = None,
    region: RegionConfig | None = None,
    *,
    may_create: bool = True,
) -> ResolvedState:
    """Follow the references of `config`; create the state directory and the first secrets if there are none.

    `region` is the section `region` of the configuration. Without `may_create` nothing is written: secrets that do not
    exist yet are random ones, used by nobody.

    Raises:
        ConfigError: a reference leads nowhere, or its value cannot be used.
    """
    environ = os.environ if environ is None else environ
    state_dir = _resolve_state_dir(config, environ, may_create=may_create)
    url = config.database_url
    if url is None:
        resolved_url = f"sqlite+aiosqlite:///{state_dir / 'manta.db'}"
    else:
        text = url if isinstance(url, str) else follow(url, environ, "database_url")
        resolved_url = parse_database_url(text)
    if config.pepper is None:
        pepper = _load_or_create_secret(state_dir / "pepper", "pepper", may_create=may_create)
    else:
        pepper = follow(config.pepper, environ, "pepper").encode()
    if len(pepper) < MIN_PEPPER_BYTES:
        raise ConfigError(f"The pepper is shorter than {MIN_PEPPER_BYTES} bytes: use a long random one.")
    master_key = _resolve_master_key(config, state_dir, environ, may_create=may_create)
    objects = resolve_object_store(config.object_store, state_dir, environ)
    if region is not None and region.others:
        _check_is_shared(config, resolved_url)
    place = None if region is None else resolve_region(region, environ)
    return ResolvedState(config, state_dir, resolved_url, pepper, master_key, objects, place)


def parse_master_key(text: str) -> bytes:
    """Return the 32 bytes of a master key in hexadecimal or base64.

    Raises:
        ConfigError: the text is neither, or the key has another length.
    """
    try:
        key = bytes.fromhex(text) if len(text) == 2 * MASTER_KEY_BYTES else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != MASTER_KEY_BYTES:
        raise ConfigError(f"The master key is not {MASTER_KEY_BYTES} random bytes in hexadecimal or base64.")
    return key


def parse_database_url(text: str) -> str:
    """Return the URL with the driver for its database, and several hosts in the form of SQLAlchemy.

    The path of a SQLite file becomes absolute.

    Raises:
        ConfigError: it is not the URL of a SQLite or PostgreSQL database.
    """
    scheme, separator, rest = text.strip().partition("://")
    if not separator:
        raise ConfigError("database_url is not a URL of the form sqlite:///FILE or postgresql://HOST/NAME.")
    driver = _DRIVERS.get(scheme.lower())
    if driver is None:
        raise ConfigError(f"database_url names {scheme!r}; sqlite and postgresql are supported.")
    if driver.startswith("sqlite"):
        path = rest.removeprefix("/")
        if not path or path == ":memory:" or "?" in path:
            raise ConfigError("database_url names no file; an in-memory SQLite database cannot be shared.")
        rest = f"/{Path(path).expanduser().absolute()}"
    else:
        rest = one_form(rest)
    return f"{driver}://{rest}"


def check_database(config: StateConfig, num_nodes: int, environ: Mapping[str, str] | None = None) -> None:
    """Check that `num_nodes` nodes can share the database and the object store.

    Raises:
        ConfigError: more than one node serves and the database is SQLite, or files are in the state directory.
    """
    url = config.database_url
    if url is not None and not isinstance(url, str):
        url = follow(url, os.environ if environ is None else environ, "database_url")
    if num_nodes > 1 and (url is None or parse_database_url(url).startswith("sqlite")):
        raise ConfigError(
            f"The database is SQLite, a file on one machine, but {num_nodes} nodes serve. "
            "Set state.database_url to a PostgreSQL URL, or serve from one node."
        )
    if num_nodes > 1 and config.object_store.url is None:
        raise ConfigError(
            f"Files are kept in a directory on one machine, but {num_nodes} nodes serve. Set state.object_store.url to "
            "a bucket, or to a directory that all nodes share."
        )


def _check_is_shared(config: StateConfig, database_url: str) -> None:
    """Check that several regions can share the stored state, and use the same secrets."""
    if database_url.startswith("sqlite"):
        raise ConfigError("Regions share one database, which SQLite cannot be: set state.database_url to PostgreSQL.")
    if config.object_store.url is None:
        raise ConfigError(
            "Regions share what is stored: set state.object_store.url, and `other` to the other region's."
        )
    if config.pepper is None or config.master_key is None:
        raise ConfigError("Regions share keys and content: set state.pepper and state.master_key to the same in each.")


def _resolve_state_dir(config: StateConfig, environ: Mapping[str, str], *, may_create: bool) -> Path:
    reference = config.state_dir
    path = Path(follow(reference, environ, "state_dir")) if isinstance(reference, EnvReference) else reference
    path = path.expanduser().absolute()
    if not may_create:
        return path
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"state_dir {path} cannot be created: {error.strerror}.") from None
    return path


def _resolve_master_key(config: StateConfig, state_dir: Path, environ: Mapping[str, str], *, may_create: bool) -> bytes:
    if config.master_key is not None:
        return parse_master_key(follow(config.master_key, environ, "master_key"))
    secret = _load_or_create_secret(state_dir / "master_key", "master key", may_create=may_create)
    return parse_master_key(secret.decode("ascii", "replace"))


def _load_or_create_secret(path: Path, name: str, *, may_create: bool) -> bytes:
    """Return the secret in the file; without a file, create a secret that only the owner can read.

    It is written to a draft and linked into place: of several processes that start together, one creates the secret,
    and the others read it whole.
    """
    if not path.exists():
        if not may_create:
            return secrets.token_hex(32).encode()
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    try:
        return path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"The {name} in {path} cannot be read: {error.strerror}.") from None
