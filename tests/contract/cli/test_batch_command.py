"""`manta batch` against the application behind a real server, its batches run in this process."""

import asyncio
import json
import signal

import orjson
import pytest
from sqlalchemy import select, update
from typer.testing import CliRunner

from deployments.state.database.tables.content import batches
from deployments.state.files.content import FileWriter
from serve_app.cli import main
from tests.contract.cli.commands import Command
from tests.contract.http.answers import MODEL, SECRET, USAGE, answer
from tests.contract.http.conftest import (  # noqa: F401 - fixtures.
    batch_stores,
    batching,
    file_store,
    files_url,
    serve,
    world,
)
from tests.twins.engine import Script
from tests.waiting import eventually

COLUMNS = {"COLUMNS": "200"}
STOPS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


def requests(num: int, **overrides) -> bytes:
    lines = []
    for number in range(num):
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi."}]}
        one = {"custom_id": f"{number}", "method": "POST", "url": "/v1/chat/completions", "body": body, **overrides}
        lines.append(orjson.dumps(one) + b"\n")
    return b"".join(lines)


def environment_at(address: str) -> dict[str, str]:
    """Return what a command must know to reach a service."""
    return {**COLUMNS, "MANTA_URL": f"{address}/v1", "MANTA_API_KEY": SECRET}


@pytest.fixture
async def environment(world, batching):  # noqa: F811
    """What a command must know to reach the live application."""
    async with serve(world.app()) as address:
        yield environment_at(address)


@pytest.fixture
def manta(environment):
    """Runs a command in a thread."""

    async def run(*arguments: str):
        return await asyncio.to_thread(CliRunner().invoke, main, ["batch", *arguments], env=environment)

    return run


async def test_run_uploads_waits_and_downloads(manta, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(requests(5))
    done = await manta("run", str(tmp_path / "in.jsonl"))
    assert done.exit_code == 0, done.output
    assert "5 of 5 requests completed, 0 failed" in done.stdout
    answers = [json.loads(line) for line in (tmp_path / "in.output.jsonl").read_text().splitlines()]
    assert [one["custom_id"] for one in answers] == ["0", "1", "2", "3", "4"]
    listed = json.loads((await manta("list", "--json")).stdout)
    assert [batch["status"] for batch in listed] == ["completed"]
    assert listed[0]["id"] in (await manta("list")).stdout
    shown = await manta("show", listed[0]["id"])
    assert "5 of 5 requests completed" in shown.stdout
    cancelled = await manta("cancel", listed[0]["id"])
    assert cancelled.exit_code == 1
    assert "Cannot cancel a batch with status 'completed'." in cancelled.output


async def test_wait_outlasts_a_service_that_is_away(world, batching, tmp_path):  # noqa: F811
    app, release, refused = world.app(), asyncio.Event(), []

    async def service(scope, receive, send):
        if scope["method"] == "GET" and not release.is_set():
            refused.append(scope["path"])
            raise OSError("away")  # A 500 of the server's, which is no JSON.
        await app(scope, receive, send)

    (tmp_path / "in.jsonl").write_bytes(requests(2))
    async with serve(service) as address:
        environment = environment_at(address)
        arguments = ["batch", "run", str(tmp_path / "in.jsonl")]
        running = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, main, arguments, env=environment))
        await eventually(lambda: len(refused) > 3, 60)  # More than the client's own tries.
        assert not running.done()
        release.set()
        done = await asyncio.wait_for(running, 60)
    assert done.exit_code == 0, done.output
    assert "2 of 2 requests completed, 0 failed" in done.stdout


async def test_failed_lines_end_the_command_with_an_error(manta, tmp_path):
    (tmp_path / "in.txt").write_bytes(requests(2, body={"model": "none", "messages": []}))
    done = await manta("run", str(tmp_path / "in.txt"), "-o", str(tmp_path / "out"))
    assert done.exit_code == 1
    assert "0 of 2 requests completed, 2 failed" in done.stdout
    assert "The first that failed is 0, line 1: Invalid 'messages': empty array." in done.stdout
    assert len((tmp_path / "out").read_text().splitlines()) == 2


async def test_the_first_line_that_failed_is_shown_with_its_place_and_why(manta, tmp_path):
    wrong = {"model": MODEL, "messages": [], "temprature": 1}
    (tmp_path / "in.jsonl").write_bytes(requests(2) + requests(1, custom_id="wrong", body=wrong))
    done = await manta("run", str(tmp_path / "in.jsonl"), "--json")
    assert done.exit_code == 1
    assert "The first that failed is wrong, line 3: " in done.stderr
    assert json.loads(done.stdout)["request_counts"]["failed"] == 1


async def test_programs_get_the_ended_batch_alone_on_standard_output(manta, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(requests(2))
    done = await manta("run", str(tmp_path / "in.jsonl"), "--json")
    ended = json.loads(done.stdout)
    assert (ended["status"], ended["request_counts"]["completed"]) == ("completed", 2)
    assert ended["output"] == str(tmp_path / "in.output.jsonl")
    assert "bytes uploaded" in done.stderr
    again = json.loads((await manta("wait", ended["id"], "-o", str(tmp_path / "again"), "--json")).stdout)
    assert again == {**ended, "output": str(tmp_path / "again")}


async def test_no_batches_are_told_of_in_a_sentence(manta):
    assert (await manta("list")).stdout.startswith("There are no batches of this account.")


async def test_an_address_without_the_api_s_path_gets_it(manta, environment, tmp_path):
    address = environment["MANTA_URL"].removesuffix("/v1")
    for url in (address, f"{address}/", f"{address}/v1"):
        assert (await manta("list", "--json", "--url", url)).exit_code == 0
    wrong = await manta("list", "--url", "localhost:8000")
    assert wrong.exit_code == 1
    assert "'localhost:8000' is not the address of a service, such as http://127.0.0.1:8000/v1." in wrong.output


async def test_an_input_that_is_not_valid_is_explained_line_by_line(manta, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(requests(1) + b"x\n")
    done = await manta("run", str(tmp_path / "in.jsonl"))
    assert done.exit_code == 1
    assert "line 2: This line is not parseable as valid JSON." in done.output
    assert "Traceback" not in done.output


async def test_a_batch_that_failed_on_its_way_is_downloaded_and_explained(
    manta,
    batch_stores,  # noqa: F811
    tmp_path,
):
    (tmp_path / "in.jsonl").write_bytes(requests(2))
    target = tmp_path / "out"
    done = await manta("run", str(tmp_path / "in.jsonl"), "-o", str(target))
    assert done.exit_code == 0
    target.unlink()
    lost = {"code": "input_file_lost", "message": "The input is gone.", "param": None, "line": None}
    async with batch_stores.database.write() as connection:
        (batch_id,) = await connection.scalars(select(batches.c.batch_id))
        await connection.execute(update(batches).values(status="failed", errors=[lost]))
    done = await manta("wait", batch_id, "-o", str(target))
    assert done.exit_code == 1
    assert "The batch has failed.\nThe input is gone." in done.output
    assert len(target.read_text().splitlines()) == 2


async def test_what_cannot_be_reached_or_found_is_one_sentence(manta):
    away = await manta("list", "--url", "http://127.0.0.1:9/v1")
    assert "The service at http://127.0.0.1:9/v1 cannot be reached." in away.output
    unknown = await manta("show", "batch_x")
    assert "No batch found with id 'batch_x'." in unknown.output
    keyless = await manta("list", "--key", "")
    assert "Give an API key with --key, or in MANTA_API_KEY or OPENAI_API_KEY." in keyless.output
    assert {away.exit_code, unknown.exit_code, keyless.exit_code} == {1}


@pytest.fixture
def start(tmp_path_factory):
    """Starts a command in a process of its own."""
    started: list[Command] = []

    def run(environment: dict[str, str], *arguments: str) -> Command:
        command = Command(tmp_path_factory.mktemp("command"), environment, "batch", *arguments)
        started.append(command)
        return command

    yield run
    for command in started:
        command.remove()


async def stop(command: Command, number: int, is_there: asyncio.Event | None = None) -> str:
    """Send a signal, when the command is where it must stop; return its error output."""
    if is_there is not None:
        await asyncio.wait_for(is_there.wait(), 60)
    told = await command.stop(number)
    assert "Traceback" not in told, told
    assert "Aborted" not in told, told
    return told.strip()


@pytest.mark.parametrize(("number", "status"), STOPS)
async def test_a_stopped_run_says_that_the_batch_goes_on_and_how_to_go_on_with_it(
    world,  # noqa: F811
    environment,
    manta,
    start,
    tmp_path,
    number,
    status,
):
    gate = asyncio.Event()
    world.chat.script = lambda request: Script([gate, *answer(request).steps], usage=USAGE)
    (tmp_path / "in.jsonl").write_bytes(requests(3))
    command = start(environment, "run", str(tmp_path / "in.jsonl"))
    await eventually(lambda: ": validating\n" in command.printed, 60)
    batch_id = command.printed.partition(": validating\n")[0].split()[-1]
    told = await stop(command, number)
    assert command.status == status
    again = f"wait {batch_id} -o {tmp_path / 'in.output.jsonl'}"
    for said in (
        "keeps running",
        f"manta batch show {batch_id}",
        f"manta batch cancel {batch_id}",
        f"manta batch {again}",
    ):
        assert said in told
    (batch,) = json.loads((await manta("list", "--json")).stdout)
    assert (batch["id"], batch["status"] in ("validating", "in_progress")) == (batch_id, True)
    gate.set()
    done = await manta(*again.split())
    assert done.exit_code == 0, done.output
    assert len((tmp_path / "in.output.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(("number", "status"), STOPS)
async def test_a_run_that_is_stopped_while_it_uploads_leaves_nothing_and_says_so(
    world,  # noqa: F811
    environment,
    manta,
    start,
    tmp_path,
    monkeypatch,
    number,
    status,
):
    has_begun, gate, write = asyncio.Event(), asyncio.Event(), FileWriter.write

    async def write_behind_gate(writer, content):
        has_begun.set()
        await gate.wait()
        await write(writer, content)

    monkeypatch.setattr(FileWriter, "write", write_behind_gate)
    with (tmp_path / "in.jsonl").open("wb") as source:
        source.write(requests(1))
        source.truncate(32 * 1024 * 1024)  # More than the sockets between hold.
    command = start(environment, "run", str(tmp_path / "in.jsonl"))
    told = await stop(command, number, has_begun)
    assert (command.status, told) == (status, "No batch was created: the upload was not finished.")
    gate.set()
    await eventually(lambda: [record.status for record in world.log.records] == [499])
    assert await stored(world) == []
    assert world.objects.objects == {}
    assert json.loads((await manta("list", "--json")).stdout) == []


async def test_a_run_that_is_stopped_while_it_downloads_leaves_no_half_file(
    world,  # noqa: F811
    batching,  # noqa: F811
    start,
    tmp_path,
):
    app, is_asked, gate = world.app(), asyncio.Event(), asyncio.Event()

    async def service(scope, receive, send):
        async def send_behind_gate(message):
            await send(message)
            if scope["path"].endswith("/content") and not gate.is_set():
                is_asked.set()
                await gate.wait()

        await app(scope, receive, send_behind_gate)

    (tmp_path / "in.jsonl").write_bytes(requests(3))
    async with serve(service) as address:
        environment = environment_at(address)
        command = start(environment, "run", str(tmp_path / "in.jsonl"))
        told = await stop(command, signal.SIGINT, is_asked)
        assert command.status == 130
        ended, again = told.splitlines()[-2:]
        assert ended.endswith(" has ended; download its answers with")
        assert [path.name for path in tmp_path.glob("in*")] == ["in.jsonl"]
        gate.set()
        arguments = again.strip().removeprefix("manta ").split()
        done = await asyncio.to_thread(CliRunner().invoke, main, arguments, env=environment)
    assert done.exit_code == 0, done.output
    assert len((tmp_path / "in.output.jsonl").read_text().splitlines()) == 3


async def test_a_run_that_is_stopped_between_upload_and_batch_says_where_to_look(
    world,  # noqa: F811
    batching,  # noqa: F811
    start,
    tmp_path,
):
    app, is_asked, gate = world.app(), asyncio.Event(), asyncio.Event()

    async def service(scope, receive, send):
        if (scope["method"], scope["path"]) == ("POST", "/v1/batches"):
            is_asked.set()
            await gate.wait()
        await app(scope, receive, send)

    (tmp_path / "in.jsonl").write_bytes(requests(1))
    async with serve(service) as address:
        command = start(environment_at(address), "run", str(tmp_path / "in.jsonl"))
        told = await stop(command, signal.SIGTERM, is_asked)
        gate.set()
        await eventually(lambda: len(world.log.records) == 2)
    assert command.status == 143
    assert told == (
        "It is not known whether the batch was created; `manta batch list` shows it if it was. If it was not, the "
        "uploaded file expires by itself."
    )


async def test_a_batch_that_is_refused_leaves_no_file(manta, world, tmp_path):  # noqa: F811
    (tmp_path / "in.jsonl").write_bytes(requests(1))
    refused = await manta("run", str(tmp_path / "in.jsonl"), "--endpoint", "/v1/nothing")
    assert refused.exit_code == 1
    assert "Invalid value: '/v1/nothing'." in refused.output
    assert await stored(world) == []
    assert world.objects.objects == {}


async def stored(world) -> list[str]:  # noqa: F811
    """Return the ids of the account's files."""
    return [file.id async for file in world.client().files.list()]


async def test_commands_to_go_on_with_name_the_service_that_was_named(manta, environment, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(requests(1))
    ended = await manta("run", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "no" / "out"))
    assert ended.exit_code == 1
    assert "out cannot be written: No such file or directory." in ended.output
    assert "--url" not in ended.output
    named = ["--url", environment["MANTA_URL"], "-o", str(tmp_path / "no" / "out")]
    ended = await manta("run", str(tmp_path / "in.jsonl"), *named)
    again = ended.output.strip().splitlines()[-1].strip()
    assert again.endswith(f" --url {environment['MANTA_URL']}")
    (tmp_path / "no").mkdir()
    done = await manta(*again.removeprefix("manta batch ").split())
    assert done.exit_code == 0, done.output
    assert [path.name for path in (tmp_path / "no").iterdir()] == ["out"]
