"""The programs of the pages, run as a reader would: pasted as they are, with address and key in the environment."""

import asyncio
import json
import socket
import sys
from functools import partial
from pathlib import Path

import pytest

from deployments.state.encryption.vault import Vault
from deployments.state.webhooks.store import WebhookStore
from deployments.tools.outbound.addresses import AddressRules
from deployments.webhooks import WebhookSender
from serve_app.operations.safety.moderation import ModerationConfig
from serve_app.schemas.chat import ChatRequest
from serve_app.validation.batch_lines import parse_line
from tests.contract.http.answers import MODEL, SECRET, said
from tests.contract.http.code_interpreter_calls import runs
from tests.contract.http.conftest import serve
from tests.contract.http.file_search_calls import embed
from tests.contract.http.file_search_calls import searches as searches_files
from tests.contract.http.forks import Forks, forks_of
from tests.contract.http.mcp_calls import NAILS
from tests.contract.http.operator.test_usage import desk, keep
from tests.contract.http.response_calls import calling_custom, calls, script
from tests.contract.http.web_search_calls import LISBON
from tests.contract.http.web_search_calls import searches as searches_web
from tests.ports import free_port
from tests.tools.pages.blocks import blocks, programs
from tests.waiting import eventually

__all__ = ["desk"]

RUN_HERE = {
    "batch", "code-interpreter", "conversation", "custom-tool", "embeddings", "file-search", "first-tool", "functions",
    "mcp", "mcp-server", "moderations", "options", "requests", "rerank", "responses", "snippet", "stored-chats",
    "stream", "structured", "tokens", "upload", "usage", "web-search", "webhooks",
}  # fmt: skip


def one(name: str) -> str:
    """Return the one program that is run under a name."""
    (block,) = programs(name)
    return block.code


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs a program of a page."""
    with forks_of(tmp_path_factory.mktemp("forks"), "openai.resources") as forks:
        yield partial(printed_by, forks)


async def printed_by(forks: Forks, code: str, address: str, directory: Path, **replaced: str) -> str:
    """Return what a program prints that talks to the service at an address."""
    for old, new in {"manta/demo-chat": MODEL, **replaced}.items():
        code = code.replace(old, new)
    environment = {"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": SECRET}
    ended = await forks.run(f"import os\nos.environ.update({environment})\n{code}", directory)
    assert ended.status == 0, ended.errors
    return ended.printed


def test_every_program_is_run_here():
    assert {block.name for block in blocks("python")} == RUN_HERE


@pytest.mark.parametrize("block", [*programs("stream"), *programs("snippet")], ids=str)
async def test_the_programs_that_stream(run, live, tmp_path, block):
    assert await run(block.code, live, tmp_path) == "Hello there!"


async def test_the_program_that_holds_a_conversation(run, live, world, tmp_path):
    script(world, said("Hi."), said("A fine city."), said("25"), said("You live in Krakow."))
    printed = await run(one("conversation"), live, tmp_path)
    assert [line[31:] for line in printed.splitlines()] == ["Hi.", "A fine city.", "25", "You live in Krakow."]
    history = [message["content"] for message in json.loads(world.chat.requests[-1].body)["messages"]]
    assert len(history) == 7
    assert history[0] == "Hello! My name is Ottilie."


async def test_the_program_that_brings_functions(run, live, world, tmp_path):
    asked = calls(("get_weather", {"city": "Tallinn"}), ("get_weather", {"city": "Kyoto"}))
    script(world, asked, said("Sunny in both."))
    printed = await run(one("functions"), live, tmp_path)
    assert printed.splitlines() == ["The model asks for Tallinn", "The model asks for Kyoto", "Sunny in both."]


async def test_the_program_that_brings_a_custom_tool(run, live, world, tmp_path):
    script(world, calling_custom(("call_1", "query", "SELECT city FROM weather;")))
    assert await run(one("custom-tool"), live, tmp_path) == "SELECT city FROM weather;\n"


async def test_the_program_that_asks_for_usage(run, world, desk, live, tmp_path):
    await world.client().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x"}])
    await keep(world, desk)
    (printed,) = (await run(one("usage"), live, tmp_path)).splitlines()
    assert printed.split()[1:] == [MODEL, "9", "3"]


async def test_the_program_that_asks_for_json(run, live, world, tmp_path):
    script(world, said('{"name": "Ottilie", "age": 31}'))
    assert await run(one("structured"), live, tmp_path) == "{'name': 'Ottilie', 'age': 31}\n"


async def test_the_program_that_stores_chats(run, live, world, tmp_path):
    printed = (await run(one("stored-chats"), live, tmp_path)).splitlines()
    assert [line.partition(" ")[2] for line in printed] == ["Hello there!", "Say this is a test."]
    assert world.stored.count("chat_completions") == 0


async def test_the_program_that_sends_options_of_vllm(run, live, world, tmp_path):
    assert await run(one("options"), live, tmp_path) == "Hello there!\n"
    asked = json.loads(world.chat.requests[-1].body)
    assert (asked["top_k"], asked["repetition_penalty"]) == (20, 1.1)


async def test_the_program_that_compares_texts(run, live, tmp_path):
    assert await run(one("embeddings"), live, tmp_path) == "1.0 1.0\n"


async def test_the_program_that_ranks_documents(run, live, tmp_path):
    assert (await run(one("rerank"), live, tmp_path)).splitlines() == [
        "1 0.25 A cat eats mice and fish.",
        "0 0.24 The budget was approved.",
    ]


async def test_the_program_that_moderates(run, world, tmp_path):
    world.moderation = ModerationConfig(patterns={"illicit": ("(?i)pick (a|the) lock",)})
    async with serve(world.app()) as address:
        printed = await run(one("moderations"), address, tmp_path)
    assert printed == "True ['illicit']\nFalse []\n"


async def test_the_program_that_shows_tokens(run, live, tmp_path):
    count, strings, text = (await run(one("tokens"), live, tmp_path)).splitlines()
    assert (count, text) == ("16 of 4096", "What is a batch?")
    assert strings.startswith("['W', 'h', 'a', 't'")


async def test_the_program_that_keeps_responses(run, live, world, tmp_path):
    printed = await run(one("responses"), live, tmp_path)
    assert printed.splitlines()[:2] == ["Hello there!", "Hello there!"]
    assert printed.splitlines()[-1].endswith("response.completed")


async def test_the_program_that_runs_a_batch(run, batching, live, tmp_path):
    status, *lines = (await run(one("batch"), live, tmp_path)).strip().splitlines()
    assert status.startswith("completed")
    answers = [json.loads(line) for line in lines]
    assert [answer["custom_id"] for answer in answers] == ["question-1", "question-2", "question-3"]
    assert {answer["response"]["body"]["choices"][0]["message"]["content"] for answer in answers} == {"Hello there!"}


async def test_the_program_that_runs_a_batch_shows_what_is_wrong_with_its_file(run, batching, live, tmp_path):
    printed = await run(one("batch"), live, tmp_path, **{'f"question-{number}"': '"question-1"'})
    assert printed.startswith("failed")
    assert "line=2" in printed


async def test_the_program_that_writes_a_batch_writes_what_a_batch_may_have(run, live, tmp_path):
    assert await run(one("requests"), live, tmp_path) == ""
    lines = (tmp_path / "requests.jsonl").read_bytes().splitlines()
    requests = [parse_line(line, "/v1/chat/completions") for line in lines]
    assert [request.custom_id for request in requests] == ["question-1", "question-2", "question-3"]
    assert all(ChatRequest.model_validate(request.body) for request in requests)


async def test_the_program_that_uploads_a_file_in_parts(run, file_store, live, tmp_path):
    status, file_id, num_bytes = (await run(one("upload"), live, tmp_path)).split()
    assert (status, num_bytes) == ("completed", "2550")
    file = await file_store.find("acct_1", file_id)
    assert b"".join([piece async for piece in file_store.read(file)]) == (tmp_path / "notes.txt").read_bytes()


async def test_the_program_that_shows_a_tool(run, interpreter, live, world, tmp_path):
    script(world, runs("123 * 457"), said("56211"))
    assert await run(one("first-tool"), live, tmp_path) == "56211\n"


async def test_the_program_that_uses_the_code_interpreter(run, interpreter, live, world, tmp_path):
    script(world, runs("123 * 457"), said("56211"))
    printed = await run(one("code-interpreter"), live, tmp_path)
    call, message, file = printed.splitlines()
    assert call.startswith("code_interpreter_call 123 * 457 [OutputLogs(logs='56211")
    assert message.startswith("message")
    assert file == r"/mnt/data/table.csv b'a,b\n1,2\n'"


async def test_the_program_that_searches_files(run, indexer, live, world, tmp_path):
    world.embeddings.script = embed
    script(world, searches_files("tea"), said("Tea came from Kyoto."))
    indexer.watch()
    try:
        printed = await run(one("file-search"), live, tmp_path)
    finally:
        await indexer.close()
    first, second, answer = printed.splitlines()
    assert first.endswith("tea.txt Tea came from Kyoto.")
    assert second.endswith("salt.txt There are 12 kinds of salt.")
    assert answer == "Tea came from Kyoto."


async def test_the_program_that_searches_the_web(run, web, live, world, tmp_path):
    link = f"[the weather]({web.url(LISBON)})"
    script(world, searches_web("lisbon"), said(f"Sunny, says {link}."))
    code = one("web-search").replace("wikipedia.org", LISBON.host)
    printed = await run(code, live, tmp_path)
    assert printed.splitlines() == [f"Sunny, says {link}.", f"{LISBON.title} {web.url(LISBON)} {link}"]


async def test_the_programs_that_use_a_remote_server(run, mcp_server, live, world, tmp_path):
    port = free_port()
    code = one("mcp-server").replace("8765", str(port))
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=asyncio.subprocess.DEVNULL)
    try:
        await eventually(lambda: is_open(port))
        script(world, NAILS, said("There are 7."))
        printed = await run(one("mcp").replace("8765", str(port)), live, tmp_path)
    finally:
        server.kill()
        await server.wait()
    asked, answered = printed.splitlines()
    assert asked.startswith("It wants to call [('stock', '{\"thing\":\"nails\"}')]")
    assert answered == "['There are 7 nails.'] There are 7."


def is_open(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


async def test_the_program_that_asks_for_webhooks(run, world, tmp_path):
    world.webhooks = WebhookStore(world.stored.database, Vault(world.stored.database, b"m" * 32))
    world.webhook_sender = WebhookSender(AddressRules())
    async with serve(world.app()) as address:
        printed = await run(one("webhooks"), address, tmp_path)
    await world.webhook_sender.aclose()
    assert printed == "https://example.com/hooks/manta enabled\n"
