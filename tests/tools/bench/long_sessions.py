"""What a turn of a long session costs an ingress replica: its processor time, by the number of the turn.

    python -m tests.tools.bench.long_sessions --turns 500

The application is the real one, in this process; its model follows a script. A turn adds about 300 tokens, so the 500th
has a prompt of more than 150,000. Coding agents send the whole conversation with each turn, except over a WebSocket:
"reading" is the time to parse the bytes once, which is what no service can do without.
"""

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from serve_app.validation.body import parse_json
from tests.contract.http.answers import MODEL, pieces
from tests.contract.http.chat.test_messages import events_of as events_of_message
from tests.contract.http.chat.test_messages import fold as fold_message
from tests.contract.http.conftest import World, world_over
from tests.contract.http.stored import open_responses
from tests.sessions import ClaudeCode, Codex, step_of
from tests.twins.engine import Script
from tests.twins.gatekeeper import TestClock
from tests.twins.legal import fold, split

CONTEXT = 262_144
AT = (10, 100, 500)
AROUND = 5
"""A figure is the median over so many turns that end with the one that is named."""

KINDS = HTTP, WEBSOCKET, CLAUDE = ("codex-http", "codex-websocket", "claude-code")

Turn = tuple[float, float, int]
"""Processor time of a turn and of reading its bytes, in milliseconds, and the number of bytes."""


def script(world: World) -> None:
    """Have the model take a step of its own in each turn."""
    world.chat.card = replace(world.chat.card, max_model_len=CONTEXT, has_reasoning=True)
    turns = iter(range(1_000_000))
    world.chat.script = lambda request: Script(pieces(request, step_of(next(turns))))


async def over_http(world: World, session: Any, read: Callable[[bytes], Any], num_turns: int) -> list[Turn]:
    """Return what each turn of a session cost."""
    taken = []
    async with world.http() as http:
        for turn in range(num_turns):
            raw = orjson.dumps(session.next(turn))
            began = time.process_time()
            parse_json(raw)
            parsed = time.process_time()
            answer = await http.post(session.path, content=raw, headers={"content-type": "application/json"})
            ended = time.process_time()
            assert answer.status_code == 200, answer.text
            session.take(read(answer.content), turn)
            taken.append(((ended - parsed) * 1000, (parsed - began) * 1000, len(raw)))
    return taken


async def over_socket(world: World, session: Codex, num_turns: int) -> list[Turn]:
    """Return what each turn of a session cost that sends its new items alone."""
    received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    headers = [(b"authorization", b"Bearer sk-manta-0123456789abcdefghijklmnopqrstuvwxyz")]
    scope = {"type": "websocket", "path": session.path, "headers": headers, "query_string": b"", "subprotocols": []}
    running = asyncio.create_task(world.app()(scope, received.get, sent.put))
    received.put_nowait({"type": "websocket.connect"})
    assert (await sent.get())["type"] == "websocket.accept"
    taken = []
    for turn in range(num_turns):
        raw = orjson.dumps(session.next_message(turn))
        began = time.process_time()
        parse_json(raw)
        parsed = time.process_time()
        received.put_nowait({"type": "websocket.receive", "text": raw.decode()})
        events = []
        while not events or b'{"type":"response.completed"' not in events[-1][:40]:
            events.append((await sent.get())["text"].encode())
        ended = time.process_time()
        session.take(fold([orjson.loads(event) for event in events]), turn)
        taken.append(((ended - parsed) * 1000, (parsed - began) * 1000, len(raw)))
    received.put_nowait({"type": "websocket.disconnect", "code": 1000})
    await running
    return taken


def row(name: str, taken: list[Turn], at: int) -> str:
    """Return a row of the table, for the turns up to one."""
    some = taken[at - AROUND : at]
    total, reading = (statistics.median(one[index] for one in some) for index in (0, 1))
    return f"| {name} | {at} | {some[-1][2] / 1000:,.0f} | {total:.1f} | {reading:.1f} | {total - reading:.1f} |"


async def measure(kind: str, path: Path, num_turns: int) -> list[Turn]:
    """Return what each turn of a kind of session cost; the database is at the path."""
    clock = TestClock()
    async with open_responses(f"sqlite+aiosqlite:///{path}", path, clock) as stored:
        world = world_over(clock, stored)
        world.principal(requests_per_minute=10**7, tokens_per_minute=10**9)
        script(world)
        gc.collect()
        gc.freeze()  # As the ingress does when it has started.
        if kind == WEBSOCKET:
            return await over_socket(world, Codex(MODEL), num_turns)
        if kind == HTTP:
            return await over_http(world, Codex(MODEL), lambda body: fold(split(body)), num_turns)
        return await over_http(world, ClaudeCode(MODEL), lambda body: fold_message(events_of_message(body)), num_turns)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    rows = []
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "manta.db"
            taken = asyncio.run(measure(kind, path, options.turns))
        rows += [row(kind, taken, at) for at in AT if at <= options.turns]
    print("| session | turn | sent, kB | processor time, ms | of it reading | the rest |")
    print("|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
