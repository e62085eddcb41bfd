import os
import stat
import threading
from pathlib import Path

import pytest
from pydantic import ValidationError

from batch.config import BatchConfig
from deployments.config import ConfigError, EnvReference, FileReference, Section
from deployments.state.config import (
    StateConfig,
    check_database,
    parse_database_url,
    resolve_state,
)
from deployments.state.objects.config import ObjectStoreConfig


def test_the_default_is_a_sqlite_file_in_the_state_directory(tmp_path: Path) -> None:
    state = resolve_state(StateConfig(), {"MANTA_STATE_DIR": str(tmp_path / "here")})
    assert state.state_dir == tmp_path / "here"
    assert state.database_url == f"sqlite+aiosqlite:///{tmp_path}/here/manta.db"


def test_the_directory_is_absolute_wherever_it_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_state(StateConfig(), {}).state_dir == tmp_path / ".manta"


def test_the_first_pepper_is_made_private_and_kept(tmp_path: Path) -> None:
    first = resolve_state(StateConfig(state_dir=tmp_path), {})
    again = resolve_state(StateConfig(state_dir=tmp_path), {})
    assert len(first.pepper) == 64
    assert first.pepper == again.pepper
    assert stat.S_IMODE((tmp_path / "pepper").stat().st_mode) == 0o600
    assert first.master_key == again.master_key
    assert len(first.master_key) == 32
    assert stat.S_IMODE((tmp_path / "master_key").stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["master_key", "pepper"]


def test_those_who_start_at_once_agree_on_the_pepper(tmp_path: Path) -> None:
    peppers: list[bytes] = []
    start = threading.Barrier(8)

    def resolve() -> None:
        start.wait()
        peppers.append(resolve_state(StateConfig(state_dir=tmp_path), {}).pepper)

    threads = [threading.Thread(target=resolve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(peppers) == 8
    assert len(set(peppers)) == 1


@pytest.mark.parametrize("written", ["ab" * 32, "q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s="])
def test_the_master_key_is_read_in_hexadecimal_or_base64(tmp_path: Path, written: str) -> None:
    config = StateConfig(state_dir=tmp_path, master_key=EnvReference(env="MASTER"))
    state = resolve_state(config, {"MASTER": written})
    assert state.master_key == b"\xab" * 32
    assert written not in repr(state)
    assert not (tmp_path / "master_key").exists()


@pytest.mark.parametrize("written", ["short", "ab" * 31, "zz" * 32, "q6ur"])
def test_a_master_key_of_another_size_is_refused(tmp_path: Path, written: str) -> None:
    config = StateConfig(state_dir=tmp_path, master_key=EnvReference(env="MASTER"))
    with pytest.raises(ConfigError, match="32 random bytes") as refused:
        resolve_state(config, {"MASTER": written})
    assert written not in str(refused.value)


def test_secrets_are_read_from_where_they_are_referred_to(tmp_path: Path) -> None:
    url_file = tmp_path / "url"
    url_file.write_text("postgres://user:word@db/manta\n")
    config = StateConfig(
        state_dir=tmp_path, database_url=FileReference(file=url_file), pepper=EnvReference(env="PEPPER")
    )
    state = resolve_state(config, {"PEPPER": "x" * 32})
    assert state.database_url == "postgresql+asyncpg://user:word@db/manta"
    assert state.pepper == b"x" * 32
    assert "word" not in repr(state)
    assert "xxx" not in repr(state)


def test_the_same_is_read_from_yaml_values(tmp_path: Path) -> None:
    config = StateConfig.model_validate(
        {"state_dir": {"env": "DIR"}, "database_url": {"env": "URL"}, "pepper": {"file": str(tmp_path / "p")}}
    )
    (tmp_path / "p").write_text("y" * 40)
    state = resolve_state(config, {"DIR": str(tmp_path), "URL": "sqlite:///x.db"})
    assert state.database_url == f"sqlite+aiosqlite:///{Path.cwd()}/x.db"
    assert state.pepper == b"y" * 40


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"database_url": EnvReference(env="NONE")}, "database_url is in the environment variable NONE"),
        ({"pepper": FileReference(file=Path("/nowhere/p"))}, "pepper is in the file /nowhere/p"),
        ({"pepper": EnvReference(env="SHORT")}, "shorter than 32 bytes"),
        ({"database_url": EnvReference(env="SHORT")}, "not a URL"),
        ({"state_dir": Path("/proc/none")}, "state_dir /proc/none cannot be created"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(tmp_path: Path, values: dict[str, object], message: str) -> None:
    config = StateConfig(**{"state_dir": tmp_path, **values})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=message):
        resolve_state(config, {"SHORT": "short"})


def test_a_pepper_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pepper").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve_state(StateConfig(state_dir=tmp_path), {})


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"colour": "red"}, "colour"),
        ({"tiers": {"free": {"requests_per_minute": 0, "tokens_per_minute": 1}}}, "tiers.free.requests_per_minute"),
        ({"tiers": {"new": {"requests_per_minute": 1, "tokens_per_minute": 1}}}, "tiers.new.enqueued_tokens"),
        ({"tiers": {"free": {"requests": 1}}}, "tiers.free.requests"),
        ({"tiers": {"free": None}}, "tiers.free"),
        ({"tiers": {"No Name": {}}}, "tiers.No Name.[key]"),
        ({"tiers": ["free"]}, "tiers"),
        ({"database_url": "postgresql://user:word@db/manta"}, ""),
        ({"database_url": "mysql://db/manta"}, ""),
        ({"pepper": {"env": "not a name"}}, "pepper.EnvReference.env"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(values: dict[str, object], place: str) -> None:
    with pytest.raises(ValidationError) as refused:
        StateConfig.model_validate(values)
    assert place in [".".join(map(str, error["loc"])) for error in refused.value.errors()]


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///x?mode=memory"])
def test_a_database_in_memory_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="names no file"):
        parse_database_url(url)


@pytest.mark.parametrize("url", [None, "sqlite:///x.db", EnvReference(env="URL")])
def test_sqlite_is_refused_for_more_than_one_node(url: str | EnvReference | None) -> None:
    config = StateConfig(database_url=url)
    check_database(config, 1, {"URL": "sqlite:///x.db"})
    with pytest.raises(ConfigError, match="2 nodes serve"):
        check_database(config, 2, {"URL": "sqlite:///x.db"})


def test_postgresql_serves_any_number_of_nodes() -> None:
    objects = ObjectStoreConfig(url="s3://bucket/manta")
    check_database(StateConfig(database_url="postgresql://db/manta", object_store=objects), 20)


def test_a_directory_of_one_node_is_refused_where_more_serve() -> None:
    with pytest.raises(ConfigError, match=r"object_store\.url"):
        check_database(StateConfig(database_url="postgresql://db/manta"), 2)


def test_the_object_store_is_a_directory_unless_a_bucket_is_named(tmp_path: Path) -> None:
    assert resolve_state(StateConfig(state_dir=tmp_path), {}).object_store.url == f"file://{tmp_path}/objects"
    secret = tmp_path / "secret"
    secret.write_text("hidden-value")
    objects = ObjectStoreConfig(
        url=EnvReference(env="BUCKET"),
        region="eu-central-1",
        access_key_id=EnvReference(env="KEY_ID"),
        secret_access_key=FileReference(file=secret),
    )
    state = resolve_state(
        StateConfig(state_dir=tmp_path, object_store=objects), {"BUCKET": "s3://bucket/here", "KEY_ID": "id"}
    )
    assert state.object_store.url == "s3://bucket/here"
    options = {"region": "eu-central-1", "access_key_id": "id", "secret_access_key": "hidden-value"}
    assert state.object_store.options == options
    assert "hidden-value" not in repr(state)


@pytest.mark.parametrize("url", ["ftp://x/y", "bucket", "s3://", "file://", "s3://me:secret@bucket"])
def test_an_object_store_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match=r"object_store\.url") as refused:
        ObjectStoreConfig(url=url)
    assert "secret@" not in refused.value.errors()[0]["msg"]


@pytest.mark.parametrize(
    ("section", "name", "advice"),
    [
        (BatchConfig, "sweep_interval_s", "set state.sweep_interval_s."),
        (BatchConfig, "max_jobs", "it is always 4 now; remove it."),
        (BatchConfig, "max_running", "it is always 10 now; remove it."),
        (BatchConfig, "slice_lines", "it is always 1000 now; remove it."),
        (BatchConfig, "poll_interval_s", "it is always 0.5 now; remove it."),
        (BatchConfig, "commit_interval_s", "it is always 0.5 now; remove it."),
        (StateConfig, "limiter", "the limiter's times are fixed now; remove the section."),
        (StateConfig, "usage_flush_interval_s", "request records are written every second; remove it."),
    ],
)
def test_a_setting_that_is_gone_is_refused_with_what_to_do(section: type[Section], name: str, advice: str) -> None:
    with pytest.raises(ValidationError) as refused:
        section.model_validate({name: 1})
    (error,) = refused.value.errors()
    assert error["msg"] == f"Value error, the setting {name} is gone: {advice}"
