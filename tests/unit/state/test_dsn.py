"""Addresses of several PostgreSQL servers, in every form that libpq takes."""

import pytest
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.engine import make_url

from deployments.config import ConfigError
from deployments.state.config import StateConfig, check_database, parse_database_url
from deployments.state.database.dsn import with_address

DIALECT = PGDialect_asyncpg()


def arguments_of(text: str) -> dict[str, object]:
    url, more = with_address(make_url(parse_database_url(text)))
    return DIALECT.create_connect_args(url)[1] | more


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:p%40w@us:5432,asia:6000/db?target_session_attrs=read-write",
        "postgresql://u:p%40w@/db?host=us:5432&host=asia:6000&target_session_attrs=read-write",
        "postgres://u:p%40w@/db?host=us,asia&port=5432,6000",
        "postgresql+asyncpg://u:p%40w@us,asia:6000/db",
    ],
)
def test_several_servers_are_read_in_every_form(text: str) -> None:
    assert arguments_of(text) == {
        "user": "u",
        "password": "p@w",
        "database": "db",
        "host": ["us", "asia"],
        "port": [5432, 6000],
        "target_session_attrs": "read-write",
    }


def test_servers_may_have_ipv6_addresses_and_share_a_port() -> None:
    of_authority = arguments_of("postgresql://[fd00::1]:5432,[fd00::2]:6000/db?target_session_attrs=primary")
    assert (of_authority["host"], of_authority["port"]) == (["fd00::1", "fd00::2"], [5432, 6000])
    assert of_authority["target_session_attrs"] == "primary"
    shared = arguments_of("postgresql:///db?host=a,b&port=7000")
    assert (shared["host"], shared["port"]) == (["a", "b"], [7000, 7000])


@pytest.mark.parametrize(
    "text", ["postgresql://u@h:5433/db?ssl=require", "postgresql:///db?host=/run/postgresql", "postgresql://h/db"]
)
def test_address_of_one_server_stays_as_it_is(text: str) -> None:
    assert parse_database_url(text) == text.replace("postgresql://", "postgresql+asyncpg://")


def test_settings_of_tls_go_to_asyncpg_in_an_address() -> None:
    text = "postgresql://u@a,b/db?sslmode=verify-full&sslrootcert=/etc/ca%20x.pem&sslcert=/c.pem&application_name=m"
    arguments = arguments_of(text)
    assert arguments.pop("dsn") == (
        "postgresql:///?sslmode=verify-full&sslrootcert=%2Fetc%2Fca%20x.pem&sslcert=%2Fc.pem&application_name=m"
    )
    assert set(arguments) == {"user", "database", "host", "port", "target_session_attrs"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("postgresql://a,b/db?host=c,d", "give them once"),
        ("postgresql:///db?host=a,b,c&port=1,2", "3 hosts and 2 ports"),
        ("postgresql://a:1,b:x/db", "HOST:PORT,HOST:PORT"),
        ("postgresql://a:1,/db", "HOST:PORT,HOST:PORT"),
        ("postgresql:///db?host=a:1,b:2&port=3,4", "twice"),
        ("postgresql://a,b/db?target_session_attrs=writer", "target_session_attrs is none of"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_database_url(text)


@pytest.mark.parametrize(
    "url", ["postgresql://u:p@a,b/db", "postgresql:///db?host=a,b&password=p", "postgresql://a,b/db?sslpassword=p"]
)
def test_password_stays_out_of_the_configuration(url: str) -> None:
    with pytest.raises(ValueError, match="carries a password"):
        StateConfig.model_validate({"database_url": url})


def test_nodes_can_share_several_servers() -> None:
    objects = {"url": "s3://bucket"}
    check_database(StateConfig.model_validate({"database_url": "postgresql://a,b/db", "object_store": objects}), 3)
