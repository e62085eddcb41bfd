"""Background responses whose runner dies, after any piece: the next runner makes the very same response of them."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from deployments.models.contract.events import Event, Finished, Logprobs, ReasoningDelta, TextDelta
from deployments.state.responses.background import BackgroundStore
from serve_app.operations.responses.tools.contract import INTERRUPTED
from tests.contract.http import code_interpreter_calls as code
from tests.contract.http import mcp_calls as mcp
from tests.contract.http.answers import MODEL, USAGE, pieces, said
from tests.contract.http.background_calls import ended, events_of, kill, taken_over
from tests.contract.http.file_search_calls import filled_store
from tests.contract.http.response_calls import WEATHER, calling, token_by_token
from tests.twins.engine import Script, written_of
from tests.twins.legal import fold
from tests.waiting import eventually

Generation = list[list[Event]]

_IDS = re.compile(
    r"\b(?:resp|msg|rs|fc|ci|fs|ws|mcp|mcpl|mcpr|cntr|cfile|req|tsc|tso|sh|sho|apc|call)_[0-9a-f]{16,}"
    r'|(?<="encrypted_content":")[^"]{64,}'  # Sealed texts are random too.
)
_TIMES = re.compile(r'"(created_at|completed_at)":\d+')


def thought(*words: str) -> Generation:
    return [[ReasoningDelta("reasoning", 0, word)] for word in words]


PROBABLE = [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]


@dataclass
class Dialogue:
    """What a model says, generation by generation, to a request; an engine stands still after some number of pieces."""

    world: Any
    generations: Sequence[Generation]
    stands_after: int | None = None

    def play(self, request) -> Script:
        messages = orjson.loads(request.body)["messages"]
        number = sum(message["role"] == "assistant" for message in messages)
        generation = self.generations[number]
        told: list[Any] = pieces(request, generation)
        written = written_of(request)
        assert written == [[n] for n in range(len(written))]
        before = sum(map(len, self.generations[:number]))
        if self.stands_after is not None and before <= self.stands_after < before + len(generation):
            told.insert(self.stands_after - before - len(written), asyncio.Event())
        return Script(told, USAGE)

    def stands(self) -> bool:
        """Say whether all that was made before the engine stood still has been kept."""
        *past, last = self.world.chat.streams or [None]
        before = sum(map(len, self.generations[: len(past)]))
        if last is None or not last.started.is_set() or before + last.num_pieces != self.stands_after:
            return False
        if last.num_pieces == len(self.generations[len(past)]):  # It goes on: what it has called is under way.
            return False
        running = self.world.runners[-1]._running.values()
        # An entry that is on its way to the database is lost with its runner: its call would count as under way.
        return all(
            not one._unsaved and not one._has_news.is_set() and one.journal._num_kept == one.journal._num_written
            for one in running
        )


def normal(events: list[dict[str, Any]]) -> list[str]:
    """Return events in which ids say only which of them are the same, and times nothing."""
    text = "\n".join(orjson.dumps(event).decode() for event in events)
    numbers: dict[str, int] = {}
    named = _IDS.sub(lambda found: f"id{numbers.setdefault(found[0], len(numbers))}", text)
    return _TIMES.sub(r'"\1":0', named).split("\n")


async def run(world, dialogue: Dialogue, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a response in the background; where its engine stands still, its runner is killed there."""
    world.chat.streams.clear()
    world.chat.script = dialogue.play
    client = world.client()
    begun = await client.responses.create(model=MODEL, input="Go.", background=True, **body)
    if dialogue.stands_after is not None:
        await eventually(dialogue.stands, 30)
        shown = await world.stored.events(begun.id)
        await kill(world, world.runners[-1])
        world.chat.script = Dialogue(world, dialogue.generations).play
        await ended(await taken_over(world), begun.id)
        assert (await world.stored.events(begun.id))[: len(shown)] == shown
    else:
        await ended(client.responses, begun.id)
    return await events_of(world, begun.id)


async def check_every_cut(world, generations: Sequence[Generation], body: dict[str, Any]) -> dict[str, Any]:
    """Assert that a response becomes the same wherever its runner dies; return it."""
    whole = await run(world, Dialogue(world, generations), body)
    for cut in range(sum(map(len, generations))):
        await delete_containers(world)  # There is room for three.
        events = await run(world, Dialogue(world, generations, cut), body)
        assert normal(events) == normal(whole), f"killed after {cut} pieces"
    return fold(whole)


async def delete_containers(world) -> None:
    if world.built_ins.get("code_interpreter") is None:
        return
    client = world.client()
    async for container in client.containers.list():
        await client.containers.delete(container.id)


async def test_texts_thoughts_and_calls_of_functions_go_on(world):
    calls = calling(("call_0", "get_weather", '{"city":"Oslo"}'), ("call_1", "get_weather", '{"city":"Rome"}'))
    final = await check_every_cut(
        world, [[*thought("I ", "think."), *said("Let ", "me.")[:-1], *calls]], {"tools": [WEATHER]}
    )
    assert [item["type"] for item in final["output"]] == ["reasoning", "message", "function_call", "function_call"]
    assert final["usage"]["total_tokens"] == USAGE.total_tokens


async def test_probabilities_of_tokens_and_sealed_thoughts_go_on(world):
    text = [[TextDelta("text", 0, word), Logprobs("logprobs", 0, PROBABLE)] for word in ("One ", "two.")]
    body = {"include": ["message.output_text.logprobs", "reasoning.encrypted_content"], "top_logprobs": 1}
    final = await check_every_cut(world, [[*thought("I ", "think."), *text, [Finished("finished", 0, "length")]]], body)
    assert final["incomplete_details"] == {"reason": "max_output_tokens"}
    assert len(final["output"][1]["content"][0]["logprobs"]) == 2


async def test_code_is_run_once_and_its_files_are_cited(world, interpreter):
    program = orjson.dumps({"code": "n = globals().get('n', 0) + 1\nopen('n.txt', 'w').write(str(n))\nprint(n)"})
    link = "[It](sandbox:/mnt/data/n.txt)"
    generations = [
        [*thought("Hm."), *token_by_token("code_interpreter", program.decode(), length=12)],
        token_by_token("code_interpreter", '{"code":"print(n)"}'),
        said("Here: ", link, "."),
    ]
    final = await check_every_cut(world, generations, {"tools": [code.TOOL], "include": code.OUTPUTS})
    runs = [item for item in final["output"] if item["type"] == "code_interpreter_call"]
    assert [run["outputs"][0]["logs"] for run in runs] == ["1\n", "1\n"]
    assert final["output"][-1]["content"][0]["annotations"][0]["type"] == "container_file_citation"
    assert final["usage"]["total_tokens"] == 3 * USAGE.total_tokens


async def test_searches_and_remote_calls_go_on_with_all_that_they_found(world, vector_stores, indexer, web, mcp_server):
    store = await filled_store(world, indexer, {"moon.md": "The moon is made of cheese."})
    tools = [{"type": "file_search", "vector_store_ids": [store.id]}, {"type": "web_search"}, mcp.tool(mcp_server)]
    both = calling(("a", "file_search", '{"queries":["moon"]}'), ("b", mcp.STOCK, '{"thing":"nails"}'))
    generations = [both, calling(("c", "web_search", '{"query":"lisbon"}')), said("Cheese【1.1】", " and more.")]
    final = await check_every_cut(world, generations, {"tools": tools})
    kinds = ["mcp_list_tools", "file_search_call", "mcp_call", "web_search_call", "message"]
    assert [item["type"] for item in final["output"]] == kinds
    assert final["output"][-1]["content"][0]["annotations"][0]["filename"] == "moon.md"
    num_runs = 1 + sum(map(len, generations))
    assert num_runs - 3 <= len(mcp_server.calls) <= num_runs


async def test_functions_that_were_found_stay_found_and_calls_of_the_clients_come_whole(world):
    found = {"type": "function", "name": "refund", "description": "Pay back.", "defer_loading": True}
    tools = [{"type": "tool_search"}, found, {"type": "shell"}, {"type": "apply_patch"}]
    patch = '{"operation":{"type":"delete_file","path":"a.py"}}'
    generations = [
        [*thought("Hm."), *token_by_token("tool_search", '{"query":"pay back"}', length=8)],
        calling(("a", "shell", '{"commands":["ls"]}'), ("b", "refund", "{}"), ("c", "apply_patch", patch)),
    ]
    final = await check_every_cut(world, generations, {"tools": tools})
    kinds = ["reasoning", "tool_search_call", "tool_search_output", "shell_call", "function_call", "apply_patch_call"]
    assert [item["type"] for item in final["output"]] == kinds
    assert final["output"][2]["tools"][0]["name"] == "refund"


async def test_commands_in_a_container_are_run_once(world, shell):
    commands = '{"commands":["echo x >> n.txt; wc -l < n.txt"],"timeout_ms":null,"max_output_length":null}'
    generations = [token_by_token("shell", commands, length=30), said("Done.")]
    hosted = {"type": "shell", "environment": {"type": "container_auto"}}
    final = await check_every_cut(world, generations, {"tools": [hosted]})
    assert [item["type"] for item in final["output"]] == ["shell_call", "shell_call_output", "message"]
    assert final["output"][1]["output"][0]["stdout"] == "1\n"


async def test_a_call_that_was_under_way_is_not_made_again_and_the_model_is_told(world, interpreter, monkeypatch):
    generations = [
        token_by_token("code_interpreter", '{"code":"import time; time.sleep(600)"}'),
        said("I do not know."),
    ]
    world.chat.script = Dialogue(world, generations).play
    begun = await world.client().responses.create(model=MODEL, input="Go.", background=True, tools=[code.TOOL])

    async def is_interpreting() -> bool:
        return b"code_interpreter_call.interpreting" in b"".join(await world.stored.events(begun.id))

    await eventually(is_interpreting, 30)
    await kill(world, world.runners[-1])
    response = await ended(await taken_over(world), begun.id)
    assert (response.status, response.output_text) == ("completed", "I do not know.")
    call = fold(await events_of(world, begun.id))["output"][0]
    assert (call["status"], call["code"]) == ("failed", "import time; time.sleep(600)")
    told = orjson.loads(world.chat.requests[-1].body)["messages"][-1]
    assert (told["role"], told["content"]) == ("tool", INTERRUPTED)


async def test_a_call_is_not_made_before_it_is_stored_that_it_is_under_way(world, mcp_server, monkeypatch):
    """The next runner would create it again."""
    is_storing, may_store, append = asyncio.Event(), asyncio.Event(), BackgroundStore.append

    async def append_later(store, *args, journal=(), **more):
        if any(orjson.loads(entry)["kind"] == "call" for entry in journal):
            is_storing.set()
            await may_store.wait()
        return await append(store, *args, journal=journal, **more)

    monkeypatch.setattr(BackgroundStore, "append", append_later)
    world.timing = replace(world.timing, lease_s=30.0)
    world.chat.script = Dialogue(world, [token_by_token(mcp.STOCK, '{"thing":"nails"}'), said("Ten.")]).play
    responses = world.client().responses
    begun = await responses.create(model=MODEL, input="Go.", background=True, tools=[mcp.tool(mcp_server)])
    await is_storing.wait()
    await asyncio.sleep(0.5)
    assert mcp_server.calls == []
    may_store.set()
    assert (await ended(responses, begun.id)).output_text == "Ten."
    assert mcp_server.calls == [("stock", "nails")]


async def test_it_can_be_taken_over_again_and_again(world):
    dialogue = Dialogue(world, [[*thought("I ", "think."), *said("One ", "two ", "three.")]], 1)
    world.chat.script = dialogue.play
    begun = await world.client().responses.create(model=MODEL, input="Go.", background=True)

    async def stands() -> bool:
        return len(await world.stored.journal(begun.id)) == dialogue.stands_after

    for stands_next in (3, 4, None):
        await eventually(stands, 30)
        await kill(world, world.runners[-1])
        dialogue.stands_after = stands_next
        responses = await taken_over(world)
    response = await ended(responses, begun.id)
    assert (response.output_text, response.usage.total_tokens) == ("One two three.", USAGE.total_tokens)
    fold(await events_of(world, begun.id))
