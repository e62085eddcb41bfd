"""Attempts to take more than a sandbox may, to outlive it, and to leave it half way. Each one really runs.

They end by themselves, so that a host is safe also where an attempt succeeds.
"""

import asyncio
import errno
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from deployments.tools.sandbox.frames import SandboxDied
from deployments.tools.sandbox.host import prepare_host
from tests.contract.sandbox.looking import look
from tests.waiting import eventually


async def test_processes_cannot_multiply(sandbox):
    code = """
import os, time
born = 0
try:
    for _ in range(300):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        born += 1
except OSError as error:
    print(born, type(error).__name__)
    time.sleep(10 if born > 16 else 0)
"""
    result = await sandbox.run(code)
    if result.status == "died":  # gVisor lets more of them be made, for a moment.
        assert result.reason in ("It ran more than 16 processes.", "It used more than 192 MiB of memory.")
        return
    born, error = result.logs.split()
    assert 5 < int(born) <= 16
    assert error == "BlockingIOError"


async def test_threads_cannot_multiply(sandbox):
    code = """
import threading, time
started = 0
try:
    for _ in range(300):
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
        started += 1
except RuntimeError:
    print(started)
    time.sleep(10 if started > 16 else 0)
"""
    result = await sandbox.run(code)
    if result.status == "died":
        assert result.reason == "It ran more than 16 processes."
        return
    assert int(result.logs) <= 16


async def test_a_service_with_many_threads_leaves_room_for_processes(host):
    is_over = threading.Event()
    threads = [threading.Thread(target=is_over.wait) for _ in range(host.limits.num_processes + 4)]
    for thread in threads:
        thread.start()
    sandbox = await host.start()
    try:
        code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(7)'], check=True, close_fds=False)"
        assert (await sandbox.run(code)).logs.startswith("7\n")
    finally:
        await sandbox.close()
        is_over.set()
        for thread in threads:
            thread.join()


async def test_what_a_call_leaves_running_is_ended(sandbox):
    await sandbox.run(
        "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid(); time.sleep(60)"
    )
    left = sandbox._census.below(sandbox.init_pid, fresh=True).pids
    assert left == (sandbox._interpreter_pid,)
    assert (await sandbox.run("1 + 1")).logs == "2\n"


async def test_threads_that_go_on_working_end_the_sandbox(host):
    sandbox = await host.start()
    try:
        await sandbox.run("import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin).start()")
        async with asyncio.timeout(60):
            while sandbox.is_running:
                await asyncio.sleep(0.05)
                sandbox.check_idle()
        assert (await sandbox.run("1")).reason == "It went on working after its call had ended."
    finally:
        await sandbox.close()


async def test_nothing_is_left_when_it_ends(host):
    sandbox = await host.start()
    await sandbox.run("import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(60)\nopen('x', 'w').write('x')")
    pids = [sandbox.init_pid, sandbox._interpreter_pid, sandbox._process._bubblewrap.pid]
    await sandbox.close()
    assert not [pid for pid in pids if _is_there(pid)]


async def test_it_ends_where_a_process_cannot_be_had_as_a_descriptor(host, monkeypatch):
    def refuse(pid):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    closed, killed = await host.start(), await host.start()
    assert (await closed.run("1 + 1")).logs == "2\n"
    pids = [closed.init_pid, closed._process._bubblewrap.pid]
    await closed.close()
    assert not [pid for pid in pids if _is_there(pid)]
    os.kill(killed.init_pid, 9)
    await eventually(lambda: not killed.is_running)
    await killed.close()


async def test_it_dies_with_the_service(host):
    program = (
        "import asyncio, os\nfrom deployments.tools.sandbox.host import prepare_host\n"
        "async def main():\n    sandbox = await (await prepare_host(packages=())).start()\n"
        "    running = asyncio.create_task(sandbox.run('while True: pass'))\n    await asyncio.sleep(0.1)\n"
        "    print(sandbox.init_pid, sandbox._interpreter_pid, flush=True)\n    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())"
    )
    service = subprocess.run(  # noqa: ASYNC221
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    pids = [int(pid) for pid in service.stdout.split()]
    assert len(pids) == 2, service.stderr
    async with asyncio.timeout(20):
        while any(_is_alive(pid) for pid in pids):  # noqa: ASYNC110 - nobody tells when a process is gone.
            await asyncio.sleep(0.02)


def _is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


async def test_one_process_cannot_take_much_memory(sandbox):
    result = await sandbox.run("kept = [bytearray(1 << 20) for _ in range(2000)]; print('all of it')")
    assert "all of it" not in result.logs
    assert (result.status == "error" and "MemoryError" in result.logs) or "MiB of memory" in (result.reason or "")


async def test_processes_together_cannot_take_much_memory(sandbox):
    code = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        kept = [bytearray(os.urandom(1 << 20)) for _ in range(100)]
        time.sleep(20)
        os._exit(0)
time.sleep(20)
"""
    result = await sandbox.run(code)
    assert result.status == "died"
    assert result.reason == "It used more than 192 MiB of memory."


async def test_shared_memory_counts(sandbox):
    code = """
import mmap, time
kept = mmap.mmap(-1, 400 << 20)
for at in range(0, 400 << 20, 4096):
    kept[at] = 1
time.sleep(20)
"""
    result = await sandbox.run(code)
    assert result.status == "died"
    assert result.reason == "It used more than 192 MiB of memory."


async def test_the_disk_cannot_be_filled(sandbox):
    code = """
for n in range(16):
    try:
        with open(f'f{n}', 'wb') as file:
            file.write(bytes(1 << 20))
    except OSError as error:
        print(n, error.strerror); break
"""
    count, _, reason = (await look(sandbox, code)).partition(" ")
    assert 6 <= int(count) <= 8
    assert reason == "No space left on device"


async def test_a_file_cannot_grow_without_end(sandbox):
    said = await look(sandbox, "attempt(open('big', 'wb').write, bytes(5 << 20)); os.path.getsize('big')")
    assert int(said.splitlines()[-1]) <= 4 << 20
    assert await look(sandbox, "attempt(os.truncate, 'sparse', 1 << 40) if open('sparse', 'w') else 0") == "'EFBIG'"


async def test_the_scratch_folder_is_small(sandbox):
    assert await look(sandbox, "attempt(open('/tmp/x', 'wb', buffering=0).write, bytes(2 << 20)) <= 1 << 20") == "True"


async def test_files_cannot_be_countless(sandbox):
    code = "import time\nfor n in range(20_000): open(f'/mnt/data/{n}', 'w').close()\ntime.sleep(20)"
    result = await sandbox.run(code)
    assert result.status == "died"
    assert result.reason == "It made more than 2000 files."


async def test_open_files_are_bounded(sandbox):
    said = await look(sandbox, "kept = []\nwhile True:\n    kept.append(open('/dev/null'))")
    assert "Too many open files" in said


async def test_output_is_bounded(sandbox):
    result = await sandbox.run("print('x' * 200_000)")
    assert result.status == "ok"
    assert len(result.logs) < 66_000
    assert result.logs.endswith("[134465 more bytes were printed and dropped.]")


async def test_endless_output_is_interrupted(sandbox):
    result = await sandbox.run("while True: print('x' * 1000)")
    assert result.status == "interrupted"
    assert (await sandbox.run("1 + 1")).logs == "2\n"


async def test_an_endless_loop_is_interrupted_and_the_variables_stay(sandbox):
    await sandbox.run("x = 41")
    result = await sandbox.run("while True: x += 0", timeout_s=0.2)
    assert result.status == "interrupted"
    assert result.reason == "It was interrupted after 0.2 s."
    assert (await sandbox.run("x + 1")).logs == "42\n"


async def test_a_loop_that_will_not_be_interrupted_is_ended(sandbox):
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    result = await sandbox.run(code, timeout_s=0.2)
    assert result.status == "died"
    assert result.reason == "It did not end when it was interrupted."


async def test_cpu_time_is_bounded(sandbox):
    said = await look(sandbox, "import resource; resource.getrlimit(resource.RLIMIT_CPU)")
    assert said == "(1800, 1800)"


async def test_code_that_uses_up_its_cpu_time_is_ended(host):
    frugal = await prepare_host(replace(host.limits, cpu_s=1), packages=())
    sandbox = await frugal.start()
    try:
        assert (await sandbox.run("while True: pass")).status == "died"
    finally:
        await sandbox.close()


async def test_killing_it_in_the_middle_of_a_call_ends_the_call(sandbox):
    calling = asyncio.create_task(sandbox.run("import time; time.sleep(60)"))
    await asyncio.sleep(0.05)
    os.kill(sandbox.init_pid, 9)
    result = await calling
    assert result.status == "died"
    with pytest.raises(SandboxDied):
        await sandbox.list_files()


async def test_cancelling_a_call_stops_the_code_and_keeps_the_container(sandbox):
    calling = asyncio.create_task(sandbox.run("x = 1\nwhile True: x += 1"))
    await asyncio.sleep(0.05)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    first = (await sandbox.run("x")).logs
    assert (await sandbox.run("x")).logs == first != ""


async def test_cancelling_a_call_again_and_again_keeps_the_container_whole(sandbox):
    calling = asyncio.create_task(sandbox.run("x = 1\nwhile True: x += 1"))
    await asyncio.sleep(0.05)
    for _ in range(5):
        calling.cancel()
        await asyncio.sleep(0)
    assert (await sandbox.run("print('next')")).logs == "next\n"


async def test_a_reader_that_leaves_half_way_keeps_the_container_whole(sandbox):
    await sandbox.run("open('a', 'wb').write(bytes(1 << 20))")
    for _ in range(20):
        reading = asyncio.create_task(sandbox.read("a", 0))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.sleep(0)
    assert await sandbox.read("a", (1 << 20) - 3) == bytes(3)


async def test_closing_it_in_the_middle_of_calls_ends_them(host):
    sandbox = await host.start()
    running = asyncio.create_task(sandbox.run("while True: pass"))
    listing = asyncio.create_task(sandbox.list_files())
    await asyncio.sleep(0.05)
    await sandbox.close()
    assert (await running).status == "died"
    with pytest.raises(SandboxDied):
        await listing
