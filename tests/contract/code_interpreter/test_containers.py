"""Containers as the ingress sees them: a real channel, real sandboxes, no Ray."""

import asyncio
import os
import secrets
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deployments.tools.code_interpreter import replica as replica_module
from deployments.tools.code_interpreter.client import RemoteHosts
from deployments.tools.code_interpreter.containers import Containers
from deployments.tools.code_interpreter.messages import (
    ContainerFileMissing,
    ContainerGone,
    ContainerRefused,
    InterpreterAway,
    InterpreterOff,
)
from deployments.tools.code_interpreter.replica import CodeInterpreterReplica
from deployments.tools.config import CodeInterpreterConfig
from deployments.tools.sandbox.host import WarmPool
from deployments.tools.sandbox.root import SandboxUnavailable
from tests.twins.interpreter import run_interpreter, sandbox_host
from tests.waiting import eventually


@pytest.fixture
async def interpreter(tmp_path):
    async with run_interpreter(tmp_path) as running:
        yield running


@pytest.fixture
async def container(interpreter):
    place = await interpreter.hosts.create("cntr_1", 60)
    return interpreter.hosts, place


async def write(hosts, place, path, content, container="cntr_1"):
    return await hosts.write(place, container, path, 0, content, is_last=True)


async def read(hosts, place, file_id):
    return b"".join([piece async for piece in hosts.read(place, "cntr_1", file_id)])


async def test_a_container_whose_maker_is_cancelled_is_ended(interpreter, monkeypatch):
    hosts, containers = interpreter.hosts, interpreter.replicas[0].containers
    ask = hosts._ask

    async def ask_and_hear_nothing(place, operation, *arguments, **fields):
        answer = await ask(place, operation, *arguments, **fields)
        if operation == "create":
            await asyncio.Event().wait()
        return answer

    monkeypatch.setattr(hosts, "_ask", ask_and_hear_nothing)
    making = asyncio.create_task(hosts.create("cntr_1", 60))
    await eventually(lambda: containers.num_containers == 1 and not containers._num_coming)
    making.cancel()
    await eventually(lambda: containers.num_containers == 0)
    assert making.cancelled()


async def test_variables_live_on_between_calls(container):
    hosts, place = container
    assert (await hosts.run(place, "cntr_1", "x = 20")).logs == ""
    result = await hosts.run(place, "cntr_1", "print('about')\nx * 2 + 2")
    assert (result.status, result.logs, result.reason) == ("ok", "about\n42\n", None)


async def test_errors_are_told_as_python_tells_them(container):
    hosts, place = container
    result = await hosts.run(place, "cntr_1", "def f():\n    return 1 / 0\nf()")
    assert result.status == "error"
    assert result.logs.startswith('Traceback (most recent call last):\n  File "<call 1>", line 3')
    assert "return 1 / 0" in result.logs
    assert "interpreter.py" not in result.logs


async def test_figures_come_back_as_images_and_as_files(container):
    hosts, place = container
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()\nplt.figure()\nplt.bar([1], [2]);"
    result = await hosts.run(place, "cntr_1", code)
    assert result.logs == "<BarContainer object of 1 artists>\n"
    assert [name for name, _ in result.images] == ["figure_1.png", "figure_2.png"]
    assert all(image.startswith(b"\x89PNG\r\n") for _, image in result.images)
    assert [file.path for file in result.files] == ["figure_1.png", "figure_2.png"]


async def test_numpy_and_pandas_are_there(container):
    hosts, place = container
    code = "import numpy as np, pandas as pd\nprint(pd.DataFrame({'a': np.arange(3)}).a.sum())"
    assert (await hosts.run(place, "cntr_1", code)).logs == "3\n"


async def test_files_go_in_and_out_in_pieces(container):
    hosts, place = container
    content = os.urandom(3 << 20)
    for start in range(0, len(content), 1 << 20):
        piece = content[start : start + (1 << 20)]
        file = await hosts.write(place, "cntr_1", "in/data.bin", start, piece, is_last=start == 2 << 20)
    assert (file.path, file.num_bytes, file.source) == ("in/data.bin", 3 << 20, "user")
    assert await read(hosts, place, file.file_id) == content
    result = await hosts.run(place, "cntr_1", "open('out.bin', 'wb').write(open('in/data.bin', 'rb').read()[::-1])")
    (out,) = result.files
    assert (out.path, out.source) == ("out.bin", "assistant")
    assert await read(hosts, place, out.file_id) == content[::-1]
    assert {one.file_id for one in await hosts.list_files(place, "cntr_1")} == {file.file_id, out.file_id}
    await hosts.remove(place, "cntr_1", file.file_id)
    assert [one.path for one in await hosts.list_files(place, "cntr_1")] == ["out.bin"]
    with pytest.raises(ContainerFileMissing):
        await read(hosts, place, file.file_id)
    with pytest.raises(ContainerFileMissing):
        await hosts.remove(place, "cntr_1", file.file_id)


async def test_a_changed_file_keeps_its_id_and_is_told_again(container):
    hosts, place = container
    (first,) = (await hosts.run(place, "cntr_1", "open('a', 'w').write('1')")).files
    assert (await hosts.run(place, "cntr_1", "1")).files == []
    (second,) = (await hosts.run(place, "cntr_1", "open('a', 'w').write('22')")).files
    assert (second.file_id, second.num_bytes) == (first.file_id, 2)


async def test_what_does_not_fit_is_refused_and_the_container_lives(container):
    hosts, place = container
    for offset in range(0, 8 << 20, 1 << 20):
        await hosts.write(place, "cntr_1", "big", offset, bytes(1 << 20), is_last=False)
    with pytest.raises(ContainerRefused):
        await hosts.write(place, "cntr_1", "big", 8 << 20, b"x" * 10, is_last=True)
    for path in ("../up", "/etc/x", "a/../../b"):
        with pytest.raises(ContainerRefused):
            await write(hosts, place, path, b"x")
    assert (await hosts.run(place, "cntr_1", "1")).logs == "1\n"


async def test_one_container_is_not_another(interpreter):
    hosts = interpreter.hosts
    place = await hosts.create("cntr_1", 60)
    await hosts.create("cntr_2", 60)
    file = await write(hosts, place, "a", b"x")
    await hosts.run(place, "cntr_1", "x = 1")
    assert "NameError" in (await hosts.run(place, "cntr_2", "x")).logs
    assert await hosts.list_files(place, "cntr_2") == []
    with pytest.raises(ContainerFileMissing):
        await anext(hosts.read(place, "cntr_2", file.file_id))


async def test_a_container_that_ended_is_gone(container):
    hosts, place = container
    await hosts.end(place, "cntr_1")
    await hosts.end(place, "cntr_1")
    for asking in (hosts.run(place, "cntr_1", "1"), hosts.check(place, "cntr_1"), hosts.list_files(place, "cntr_1")):
        with pytest.raises(ContainerGone):
            await asking


async def test_code_that_kills_its_container_is_told_and_the_container_gone(container):
    hosts, place = container
    result = await hosts.run(place, "cntr_1", "import os; os._exit(0)")
    assert result.status == "died"
    with pytest.raises(ContainerGone):
        await hosts.run(place, "cntr_1", "1")


async def test_a_caller_that_leaves_interrupts_its_code(container, interpreter):
    hosts, place = container
    await hosts.run(place, "cntr_1", "x = 0")
    calling = asyncio.create_task(hosts.run(place, "cntr_1", "while True: x += 1"))
    held = interpreter.replicas[0].containers._held["cntr_1"]
    await eventually(lambda: held.num_running)
    calling.cancel()
    await asyncio.wait([calling])
    await eventually(lambda: not held.num_running, 30)
    first = await hosts.run(place, "cntr_1", "x")
    assert (await hosts.run(place, "cntr_1", "x")).logs == first.logs


async def test_idle_containers_end(interpreter):
    now = [0.0]
    containers = interpreter.replicas[0].containers
    containers._clock = lambda: now[0]
    place = await interpreter.hosts.create("cntr_1", 60)
    now[0] = 59.0
    await interpreter.hosts.check(place, "cntr_1")
    now[0] = 118.0
    await containers.sweep()
    assert containers.num_containers == 1
    now[0] = 120.0
    await containers.sweep()
    assert containers.num_containers == 0


async def test_after_twenty_idle_minutes_nothing_of_a_container_is_left(interpreter):
    now = [0.0]
    containers = interpreter.replicas[0].containers
    containers._clock = lambda: now[0]
    idle_s = 60.0 * CodeInterpreterConfig().idle_minutes
    place = await interpreter.hosts.create("cntr_1", idle_s)
    secret = secrets.token_hex(16)
    code = f"open('secret.txt', 'w').write('{secret}'); open('/tmp/secret.txt', 'w').write('{secret}')"
    await interpreter.hosts.run(place, "cntr_1", code)
    pid = containers._held["cntr_1"].sandbox._interpreter_pid
    assert _writable_mounts(pid) == {"/mnt/data": "tmpfs", "/tmp": "tmpfs"}
    assert _read(f"/proc/{pid}/root/mnt/data/secret.txt") == secret
    now[0] = 20 * 60.0
    await containers.sweep()
    assert containers.num_containers == 1
    now[0] = 20 * 60.0 + 1
    await containers.sweep()
    assert containers.num_containers == 0
    assert _read(f"/proc/{pid}/status") is None  # With its last process a namespace ends, and what is mounted there.
    with pytest.raises(ContainerGone):
        await interpreter.hosts.list_files(place, "cntr_1")


def _read(path):
    try:
        return Path(path).read_text()
    except FileNotFoundError:
        return None


def _writable_mounts(pid):
    """Return what a process may write to, but for devices, and what kind of file system each is."""
    mounts = {}
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        about, _, kind = line.partition(" - ")
        path, options = about.split()[4:6]
        if "rw" in options.split(",") and not path.startswith("/dev/"):
            mounts[path] = kind.split()[0]
    return mounts


async def test_a_full_replica_sends_new_containers_elsewhere(tmp_path):
    async with run_interpreter(tmp_path, num_replicas=2, max_containers=1) as interpreter:
        first = await interpreter.hosts.create("cntr_1", 60)
        second = await interpreter.hosts.create("cntr_2", 60)
        assert first["secret"] != second["secret"]
        with pytest.raises(InterpreterAway):
            await interpreter.hosts.create("cntr_3", 60)
        with pytest.raises(ContainerGone):
            await interpreter.hosts.check(second, "cntr_1")


async def test_the_containers_of_a_replica_that_goes_are_gone(container, interpreter):
    hosts, place = container
    calling = asyncio.create_task(hosts.run(place, "cntr_1", "while True: pass"))
    await eventually(lambda: interpreter.replicas[0].containers._held["cntr_1"].num_running)
    await interpreter.replicas[0].server.close()
    with pytest.raises(ContainerGone, match="replica"):
        await calling
    with pytest.raises(ContainerGone):
        await hosts.run(place, "cntr_1", "1")


async def test_a_replica_that_cannot_build_sandboxes_says_so(interpreter):
    async def fail():
        raise SandboxUnavailable("no bubblewrap")

    interpreter.replicas[0].containers._pool = WarmPool(fail, 0)
    with pytest.raises(InterpreterOff, match="no bubblewrap") as caught:
        await interpreter.hosts.create("cntr_1", 60)
    assert caught.value.message.startswith("The code interpreter is off: no bubblewrap. Retrying does not help.")


async def test_a_host_that_is_unable_is_told_of_before_anything_is_made(interpreter):
    await interpreter.hosts.check_able()
    interpreter.replicas[0].containers._problem = "no bubblewrap"
    await interpreter.hosts.check_able()  # What was found out holds for a while.
    interpreter.hosts._able_until = 0.0
    with pytest.raises(InterpreterOff, match="no bubblewrap"):
        await interpreter.hosts.check_able()


async def test_a_replica_on_a_host_without_bubblewrap_refuses_before_anything_is_made(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(replica_module, "keep_handlers_open", lambda: None)
    monkeypatch.setattr(replica_module.ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    context = SimpleNamespace(replica_id=SimpleNamespace(unique_id=secrets.token_hex(8)))
    monkeypatch.setattr(replica_module.serve, "get_replica_context", lambda: context)
    replica: Any = SimpleNamespace()  # Of a real one, Python would call `__del__` once more.
    replica._start = partial(CodeInterpreterReplica._start, replica)
    await CodeInterpreterReplica.__init__(replica, CodeInterpreterConfig())
    place = (await CodeInterpreterReplica.record_replica_metadata(replica))["channel"]

    async def choose(excluded):
        return "0", place

    hosts = RemoteHosts(choose)
    try:
        with pytest.raises(InterpreterOff) as caught:
            await hosts.check_able()
        assert caught.value.reason == "bubblewrap is not installed: apt-get install bubblewrap"
    finally:
        hosts.close()
        await CodeInterpreterReplica.__del__(replica)


async def test_the_pool_is_refilled_and_leaves_nothing_behind():
    host, made = sandbox_host(), []

    async def start():
        made.append(await host.start())
        return made[-1]

    pool = WarmPool(start, 2)
    containers = Containers(pool, 8)
    containers.open()
    await eventually(lambda: len(pool._ready) == 2, 30)
    await containers.create("cntr_1", 60)
    await eventually(lambda: len(made) == 3 and len(pool._ready) == 2, 30)
    await containers.close()
    assert not any(one.is_running for one in made)
