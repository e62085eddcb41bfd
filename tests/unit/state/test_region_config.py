"""The section `region`: what is refused, and what it becomes."""

import pickle
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from deployments.config import ConfigError
from deployments.state.config import StateConfig, resolve_state
from deployments.state.regions import ResolvedRegion
from deployments.state.regions.config import RegionConfig, resolve_region
from serve_app.config import ServiceConfig

HTTPS = {"address": "https://asia.example.com/"}
SHARED: dict[str, Any] = {
    "database_url": "postgresql://manta@db/manta",
    "pepper": {"env": "SECRET"},
    "master_key": {"env": "SECRET"},
    "object_store": {"url": "s3://us", "name": "us", "other": {"url": "s3://asia", "name": "asia"}},
}
ENVIRON = {"SECRET": "ab" * 32}


def config_of(**changes: Any) -> RegionConfig:
    return RegionConfig.model_validate({"name": "us", "others": {"asia": HTTPS}} | changes)


def test_references_are_followed_and_addresses_brought_into_form(tmp_path: Path) -> None:
    config = config_of(others={"asia": {"address": {"env": "ASIA"}}, "eu": {"address": "https://[::1]:8443"}})
    region = resolve_region(config, {"ASIA": "https://Asia.example.com:443/"})
    assert region == ResolvedRegion("us", {"asia": "https://asia.example.com:443", "eu": "https://[::1]:8443"}, None)
    assert pickle.loads(pickle.dumps(region)) == region
    with pytest.raises(ConfigError, match="ASIA, which is not set"):
        resolve_region(config, {})


@pytest.mark.parametrize(
    "address",
    ["asia.example.com", "https://", "https://h/path", "https://u:p@h", "https://h?x=1", "https://h:port", "ftp://h"],
)
def test_what_is_no_base_address_is_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="not of the form https://HOST"):
        config_of(others={"asia": {"address": address}})
    with pytest.raises(ConfigError, match="not of the form https://HOST"):
        resolve_region(config_of(others={"asia": {"address": {"env": "ASIA"}}}), {"ASIA": address})


def test_plain_http_takes_an_explicit_word() -> None:
    with pytest.raises(ValidationError, match="allow_http"):
        config_of(others={"asia": {"address": "http://127.0.0.1:8000"}})
    config = config_of(others={"asia": {"address": "http://127.0.0.1:8000", "allow_http": True}})
    assert resolve_region(config, {}).others == {"asia": "http://127.0.0.1:8000"}


def test_region_does_not_list_itself_and_has_a_short_name() -> None:
    with pytest.raises(ValidationError, match="which is this region"):
        config_of(name="asia")
    for name in ("", "US", "a" * 17, "1st"):
        with pytest.raises(ValidationError):
            config_of(name=name)


def test_certificate_authority_is_read_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    config = config_of(certificate_authority=str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve_region(config, {})
    path.write_text("no certificate")
    with pytest.raises(ConfigError, match="holds no certificates"):
        resolve_region(config, {})


def test_service_has_one_region_unless_the_section_says_otherwise(tmp_path: Path) -> None:
    assert ServiceConfig.model_fields["region"].default is None
    state = resolve_state(StateConfig(state_dir=tmp_path), {})
    assert state.region is None
    assert state.region_name == ""
    alone = resolve_state(StateConfig(state_dir=tmp_path), {}, RegionConfig(name="us"))
    assert alone.region_name == "us"


@pytest.mark.parametrize(
    ("missing", "message"),
    [("database_url", "SQLite"), ("object_store", "object_store"), ("pepper", "pepper"), ("master_key", "pepper")],
)
def test_regions_share_what_is_stored_and_its_secrets(tmp_path: Path, missing: str, message: str) -> None:
    given = SHARED | {"state_dir": str(tmp_path)}
    assert resolve_state(StateConfig.model_validate(given), ENVIRON, config_of()).region_name == "us"
    given.pop(missing)
    with pytest.raises(ConfigError, match=message):
        resolve_state(StateConfig.model_validate(given), ENVIRON, config_of())
