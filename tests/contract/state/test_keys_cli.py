"""`manta keys`, `usage` and `requests`, run as an operator runs them, on both databases."""

import asyncio
import json
import re
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from deployments.operations import Operation
from deployments.state.database.connection import connect
from deployments.state.usage.store import UsageStore
from serve_app.cli import database, main
from tests.contract.state.records import record
from tests.databases import more_on_postgresql
from tests.patience import SOON

SECRET = re.compile(r"sk-manta-[A-Za-z0-9_-]{43}")


class Operator:
    def __init__(self, database_url: str, state_dir: Path) -> None:
        self.database_url = database_url
        self.state_dir = state_dir

    def run(self, *words: str, columns: int = 240) -> Result:
        place = ["--state-dir", str(self.state_dir), "--database-url", self.database_url]
        return CliRunner().invoke(main, [*words, *place], env={"COLUMNS": str(columns), "MANTA_STATE_DIR": None})

    def json(self, *words: str):
        result = self.run(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def refused(self, *words: str) -> str:
        result = self.run(*words)
        assert result.exit_code != 0
        assert "Traceback" not in result.output
        return result.stderr


@pytest.fixture
def operator(database_url: str, tmp_path: Path) -> Operator:
    return Operator(database_url, tmp_path / "state")


def test_a_key_lives_from_create_to_revoke(operator: Operator) -> None:
    made = operator.json("keys", "create", "--name", "ci", "--account", "acme", "--tier", "standard")
    assert SECRET.fullmatch(made["secret"])
    assert (made["tier"], made["requests_per_minute"], made["status"]) == ("standard", 60, "active")
    key_id = made["key_id"]
    assert [key["key_id"] for key in operator.json("keys", "list")] == [key_id]
    assert operator.json("keys", "show", key_id)["name"] == "ci"
    changed = operator.json(
        *("keys", "limit", key_id, "--requests-per-minute", "5", "--operation", "chat", "--model", "acme/*"),
        *("--expires-in", "30d", "--retention", "strict"),
    )
    assert (changed["requests_per_minute"], changed["operations"], changed["models"]) == (5, ["chat"], ["acme/*"])
    assert changed["retention"] == "strict"
    assert changed["expires_at"] > 0
    cleared = operator.json(
        "keys", "limit", key_id, "--tier-limits", "--all-operations", "--all-models", "--no-expiry", "--name", "cd"
    )
    assert (cleared["requests_per_minute"], cleared["operations"], cleared["models"]) == (60, None, None)
    assert (cleared["expires_at"], cleared["name"]) == (None, "cd")
    rotated = operator.json("keys", "rotate", key_id, "--overlap", "15m")
    assert SECRET.fullmatch(rotated["secret"])
    assert rotated["secret"] != made["secret"]
    assert rotated["previous_expires_at"] - rotated["rotated_at"] == pytest.approx(900)
    assert operator.json("keys", "revoke", key_id)["status"] == "revoked"
    assert operator.json("keys", "list") == []
    assert len(operator.json("keys", "list", "--all")) == 1


def test_a_key_can_be_bound_to_each_operation(operator: Operator) -> None:
    help_text = CliRunner().invoke(main, ["keys", "create", "--help"], env={"COLUMNS": "400"}).stdout
    assert ", ".join(Operation) in " ".join(help_text.replace("│", " ").split())
    words = [word for operation in Operation for word in ("--operation", operation)]
    assert operator.json("keys", "create", *words)["operations"] == list(Operation)
    made = operator.json("keys", "create", "--operation", "web_search")
    assert made["operations"] == ["web_search"]
    assert operator.json("keys", "show", made["key_id"])["operations"] == ["web_search"]


def test_a_secret_is_printed_once_for_people_too(operator: Operator) -> None:
    made = operator.run(
        "keys", "create", "--tier", "enterprise", "--requests-per-minute", "9", "--tokens-per-minute", "8"
    )
    (secret,) = SECRET.findall(made.stdout)
    listed = operator.run("keys", "list").stdout
    assert secret not in listed
    assert f"{secret[:12]}...{secret[-4:]}" in listed
    assert "enterprise" in listed


def test_the_tier_that_a_key_has_by_default_is_said_with_its_limits(operator: Operator) -> None:
    made = operator.run("keys", "create").stdout
    (key_id,) = [key["key_id"] for key in operator.json("keys", "list")]
    assert made.endswith(
        f"\nIts tier is free: 10 requests and 40,000 tokens a minute. For another one: manta keys limit {key_id} "
        "--tier standard. For a new key: --tier standard.\n"
    )
    assert "Its tier" not in operator.run("keys", "create", "--tier", "standard").stdout


@more_on_postgresql
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("keys", "create", "--tier", "research"),
            "Its tiers are: free, standard, enterprise. These are the defaults. Give",
        ),
        (("keys", "create", "--tier", "enterprise"), "enterprise tier needs requests_per_minute of its own"),
        (("keys", "create", "--requests-per-minute", "0"), "--requests-per-minute should be at least 1, not 0."),
        (("keys", "create", "--operation", "fly"), '--operation should be "chat", "completions", '),
        (("keys", "create", "--expires-in", "soon"), "'soon' is not a duration"),
        (("keys", "create", "--account", "../x"), "--account should be letters, digits, blanks and . _ @ -, with "),
        (("keys", "create", "--account", ""), "--account may not be empty."),
        (("keys", "create", "--name", "a\nb"), "--name may hold only printable characters."),
        (("keys", "create", "--admin", "--model", "x"), "an admin key has no operation or model scopes"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(operator: Operator, words: tuple[str, ...], message: str) -> None:
    operator.run("keys", "create")
    assert message in operator.refused(*words)
    assert len(operator.json("keys", "list")) == 1


def test_a_change_is_refused_in_a_sentence(operator: Operator) -> None:
    key_id = operator.json("keys", "create")["key_id"]
    assert "There is nothing to change" in operator.refused("keys", "limit", key_id)
    assert "There is no API key 'key_x'" in operator.refused("keys", "show", "key_x")
    assert "set and cleared" in operator.refused("keys", "limit", key_id, "--no-expiry", "--expires-in", "1d")
    operator.run("keys", "revoke", key_id)
    assert "is revoked" in operator.refused("keys", "rotate", key_id)


def test_usage_and_requests_are_shown(operator: Operator) -> None:
    key_id = operator.json("keys", "create")["key_id"]

    async def use() -> None:
        database = await connect(operator.database_url)
        await UsageStore(database).add([record(1, key_id=key_id, prompt_tokens=1_234)])
        await database.close()

    asyncio.run(use())
    (row,) = operator.json("usage", "--days", "3650")
    assert (row["key_id"], row["day"], row["model"], row["prompt_tokens"]) == (
        key_id,
        "2023-11-15",
        "acme/small",
        1_234,
    )
    assert "1,234" in operator.run("usage", "--days", "3650").stdout
    assert operator.json("usage", "--days", "1") == []
    assert operator.json("usage", "--days", "3650", "--account", "other") == []
    (request,) = operator.json("requests", key_id)
    assert (request["request_id"], request["status"]) == ("req_1", 200)
    assert "req_1" in operator.run("requests", key_id).stdout


def test_usage_has_names_costs_and_a_total(operator: Operator) -> None:
    key_id = operator.json("keys", "create", "--name", "ci")["key_id"]
    costs = {"input_cost": 1_500_000_000_000, "output_cost": 250_000_000_000}

    async def use() -> None:
        opened = await connect(operator.database_url)
        await UsageStore(opened).add([record(number, key_id=key_id, **costs) for number in (1, 2)])
        await opened.close()

    asyncio.run(use())
    header, row, total = operator.run("usage", "--days", "3650").stdout.splitlines()
    assert header.split()[:3] == ["day", "name", "model"]
    assert "ci" in row
    assert "3.50" in row.split()
    assert total.startswith("total")
    assert "3.50" in total.split()
    (wire,) = operator.json("usage", "--days", "3650")
    assert (wire["key_name"], wire["cost"], wire["num_requests"]) == ("ci", 3.5, 2)


def test_a_key_that_does_not_exist_is_an_error_and_one_without_requests_is_not(operator: Operator) -> None:
    key_id = operator.json("keys", "create")["key_id"]
    for words in (("requests", "key_nope"), ("usage", "--key", "key_nope"), ("keys", "show", "key_nope")):
        assert operator.refused(*words) == "Error: There is no API key 'key_nope'.\n"
    assert operator.run("requests", key_id).stdout == f"{key_id} has made no requests that the request log still has.\n"
    assert operator.run("usage", "--key", key_id).stdout == "There were no requests in the last 30 days.\n"
    assert operator.json("requests", key_id) == []


def test_no_keys_are_told_of_in_a_sentence(operator: Operator) -> None:
    operator.json("keys", "create", "--account", "acme")
    assert operator.run("keys", "list", "--account", "none").stdout == (
        "There are no keys of the account 'none'. Create one with: manta keys create\n"
    )


def test_revoking_says_what_has_happened(operator: Operator) -> None:
    key_id = operator.json("keys", "create", "--name", "ci")["key_id"]
    assert operator.run("keys", "revoke", key_id).stdout == (
        f"{key_id} (ci) is revoked. Every ingress replica refuses it within a second.\n"
    )
    again = operator.run("keys", "revoke", key_id)
    assert again.exit_code == 0
    assert re.fullmatch(rf"{key_id} \(ci\) was revoked already, on \S+ \S+ UTC\.\n", again.stdout)


def test_a_rotated_key_keeps_its_old_secret_for_a_day(operator: Operator) -> None:
    key_id = operator.json("keys", "create")["key_id"]
    rotated = operator.json("keys", "rotate", key_id)
    assert rotated["previous_expires_at"] - rotated["rotated_at"] == pytest.approx(86_400)


def test_tables_fit_the_terminal(operator: Operator) -> None:
    long = "a name of forty characters, no more left"
    key_id = operator.json("keys", "create", "--name", long, "--account", "an-account", "--tier", "standard")["key_id"]

    async def use() -> None:
        opened = await connect(operator.database_url)
        await UsageStore(opened).add([record(1, key_id=key_id)])
        await opened.close()

    asyncio.run(use())
    for words in (("keys", "list"), ("usage", "--days", "3650"), ("requests", key_id)):
        lines = operator.run(*words, columns=80).stdout.splitlines()
        assert max(map(len, lines)) <= 80, words
        assert "Not shown here: " in " ".join(lines)
        assert "Not shown" not in operator.run(*words).stdout
    assert "cost" in operator.run("usage", "--days", "3650", columns=80).stdout.splitlines()[0].split()
    assert key_id in operator.run("keys", "list", columns=80).stdout


def test_looking_makes_no_database(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["keys", "list", "--state-dir", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert "There is no database at" in result.stderr
    assert not (tmp_path / "none").exists()


def test_a_configuration_file_says_where_the_database_is(tmp_path: Path) -> None:
    config = tmp_path / "service.yaml"
    state = {"state_dir": str(tmp_path / "here"), "tiers": {"free": {"requests_per_minute": 3, "tokens_per_minute": 4}}}
    config.write_text(json.dumps({"applications": [{"args": {"state": state}}]}))
    made = CliRunner().invoke(main, ["keys", "create", "--json", "--config", str(config)])
    assert json.loads(made.stdout)["requests_per_minute"] == 3
    assert (tmp_path / "here" / "manta.db").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("applications: [{args: {state: {colour: red}}}]", ':1: state: unknown setting "colour"'),
        ("applications: [{args: {state: {database_url: 'mysql://x'}}}]", "sqlite and postgresql are supported"),
        ("applications: [{args: {state: {database_url: 'postgresql://u:pw@h/d'}}}]", "carries a password"),
        ("{", ":1: not valid YAML"),
        ("[]", "is not a Serve configuration"),
    ],
)
def test_a_wrong_configuration_file_is_refused_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    config = tmp_path / "service.yaml"
    config.write_text(text)
    result = CliRunner().invoke(main, ["keys", "list", "--config", str(config)])
    assert result.exit_code == 1
    assert message in result.stderr


def test_a_database_that_cannot_be_reached_is_told_without_its_password() -> None:
    url = "postgresql://who:hidden@127.0.0.1:1/none"
    result = CliRunner().invoke(main, ["keys", "list"], env={"MANTA_DATABASE_URL": url})
    assert result.exit_code == 1
    assert "cannot be used" in result.stderr
    assert "hidden" not in result.output


def test_a_command_that_waits_for_the_database_says_so(monkeypatch) -> None:
    monkeypatch.setattr(database, "_SILENT_S", 0.1)
    monkeypatch.setattr(database, "connect", partial(connect, patience=replace(SOON, database_connect_s=0.5)))
    with socket.create_server(("127.0.0.1", 0)) as silent:  # It takes connections and never answers.
        url = f"postgresql://manta@127.0.0.1:{silent.getsockname()[1]}/manta"
        for command in ("keys", "regions"):
            result = CliRunner().invoke(main, [command, "list"], env={"MANTA_DATABASE_URL": url})
            assert result.exit_code == 1
            first, *_, last = result.stderr.splitlines()
            assert first == "The database does not answer yet; waiting."
            assert last.startswith("Error: ")
            assert "cannot be used" in last
