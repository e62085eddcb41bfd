"""`manta batch` against the application behind a real server, its batches run in this process."""

import asyncio
import json

import orjson
import pytest
from typer.testing import CliRunner

from serve_app.cli import main
from tests.contract.http.answers import MODEL, SECRET
from tests.contract.http.conftest import (  # noqa: F401 - fixtures.
    batch_stores,
    batching,
    file_store,
    files_url,
    serve,
    world,
)

COLUMNS = {"COLUMNS": "200"}


def requests(num: int, **overrides) -> bytes:
    lines = []
    for number in range(num):
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi."}]}
        one = {"custom_id": f"{number}", "method": "POST", "url": "/v1/chat/completions", "body": body, **overrides}
        lines.append(orjson.dumps(one) + b"\n")
    return b"".join(lines)


@pytest.fixture
async def manta(world, batching):  # noqa: F811
    """Runs a command against the live application, in a thread."""
    async with serve(world.app()) as address:

        async def run(*arguments: str):
            environment = {**COLUMNS, "MANTA_URL": f"{address}/v1", "MANTA_API_KEY": SECRET}
            return await asyncio.to_thread(CliRunner().invoke, main, ["batch", *arguments], env=environment)

        yield run


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


async def test_failed_lines_end_the_command_with_an_error(manta, tmp_path):
    (tmp_path / "in.txt").write_bytes(requests(2, body={"model": "none", "messages": []}))
    done = await manta("run", str(tmp_path / "in.txt"), "-o", str(tmp_path / "out"))
    assert done.exit_code == 1
    assert "0 of 2 requests completed, 2 failed" in done.stdout
    assert len((tmp_path / "out").read_text().splitlines()) == 2


async def test_an_input_that_is_not_valid_is_explained_line_by_line(manta, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(requests(1) + b"x\n")
    done = await manta("run", str(tmp_path / "in.jsonl"))
    assert done.exit_code == 1
    assert "line 2: This line is not parseable as valid JSON." in done.output
    assert "Traceback" not in done.output


async def test_what_cannot_be_reached_or_found_is_one_sentence(manta):
    away = await manta("list", "--url", "http://127.0.0.1:9/v1")
    assert "The service at http://127.0.0.1:9/v1 cannot be reached." in away.output
    unknown = await manta("show", "batch_x")
    assert "No batch found with id 'batch_x'." in unknown.output
    keyless = await manta("list", "--key", "")
    assert "Give an API key" in keyless.output
    assert {away.exit_code, unknown.exit_code, keyless.exit_code} == {1}
