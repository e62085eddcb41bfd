"""Attempts to get out of a sandbox, or to take more than it may. Each one really runs.

They are written so that a host is safe also where an attempt succeeds: what they reach for is the test's own, and what
they fill ends by itself.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deployments.tools.sandbox import root
from deployments.tools.sandbox.frames import SandboxRefused
from tests.contract.sandbox.looking import look

NEW_USER = 0x10000000
NEW_NET = 0x40000000
NEW_MOUNT = 0x00020000

REFUSED = {
    "a socket to the network": ("import socket; attempt(socket.socket, socket.AF_INET)", "'EAFNOSUPPORT'"),
    "a raw socket": ("import socket; attempt(socket.socket, socket.AF_PACKET, socket.SOCK_RAW)", "'EAFNOSUPPORT'"),
    "a netlink socket": ("import socket; attempt(socket.socket, socket.AF_NETLINK, 3)", "'EAFNOSUPPORT'"),
    "a socket to the hypervisor": ("import socket; attempt(socket.socket, socket.AF_VSOCK)", "'EAFNOSUPPORT'"),
    "a lookup of a name": (
        "import socket\ntry:\n    socket.getaddrinfo('localhost', 80)\nexcept OSError as e:\n    print('no lookup')",
        "no lookup",
    ),
    "the host's accounts": ("attempt(open, '/etc/passwd')", "'ENOENT'"),
    "the host's secrets": ("attempt(open, '/etc/shadow')", "'ENOENT'"),
    "the homes": ("[attempt(os.listdir, p) for p in ('/root', '/home', '/var', '/run', '/proc', '/sys')]", "ENOENT"),
    "a shell": ("import subprocess; attempt(subprocess.run, ['/bin/sh', '-c', 'id'])", "'ENOENT'"),
    "the process table": ("attempt(os.listdir, '/proc/1')", "'ENOENT'"),
    "its own memory as a file": ("attempt(open, '/proc/self/mem', 'wb')", "'ENOENT'"),
    "the kernel's settings": ("attempt(open, '/proc/sys/kernel/core_pattern', 'w')", "'ENOENT'"),
    "the root folder": ("attempt(open, '/x', 'w')", "'EROFS' or 'EACCES'"),
    "the interpreter's own file": ("attempt(open, '/python/interpreter.py', 'w')", "'EROFS' or 'EACCES'"),
    "the packages": ("attempt(open, '/packages/numpy/__init__.py', 'a')", "'EROFS' or 'EACCES'"),
    "a program of the host's": ("attempt(os.chmod, '/python/bin/python', 0o777)", "'EROFS' or 'EPERM'"),
    "becoming another user": ("attempt(os.setuid, 0 if os.getuid() else 1)", "'EPERM' or 'EINVAL'"),
    "becoming another group": ("attempt(os.setgid, 0 if os.getgid() else 1)", "'EPERM' or 'EINVAL'"),
    "other groups": ("attempt(os.setgroups, [0])", "'EPERM'"),
    "ptrace": ("call(101, 16, 1, 0, 0)", "'EPERM'"),
    "reading another's memory": ("call(310, 1, None, 0, None, 0, 0)", "'EPERM'"),
    "mounting": ("call(165, b'none', b'/mnt/data', b'tmpfs', 0, None)", "'EPERM'"),
    "mounting the new way": ("call(430, b'tmpfs', 0)", "'EPERM'"),
    "unmounting": ("call(166, b'/mnt/data', 0)", "'EPERM'"),
    "another root folder": ("attempt(os.chroot, '/mnt')", "'EPERM'"),
    "turning the root around": ("call(155, b'/mnt/data', b'/mnt/data')", "'EPERM'"),
    "a user namespace": (f"call(272, {NEW_USER})", "'EPERM'"),
    "a mount namespace": (f"call(272, {NEW_MOUNT})", "'EPERM'"),
    "a process in new namespaces": (f"call(56, {NEW_USER | NEW_NET | 17}, None, None, None, None)", "'EPERM'"),
    "a process by the newer call": ("call(435, None, 0)", "'ENOSYS'"),
    "joining a namespace": ("call(308, 0, 0)", "'EPERM'"),
    "loading a program into the kernel": ("call(321, 0, None, 0)", "'EPERM'"),
    "performance events": ("call(298, None, 0, -1, -1, 0)", "'EPERM'"),
    "keys of the kernel": ("call(250, 0, 0, 0, 0, 0)", "'EPERM'"),
    "user faults": ("call(323, 0)", "'EPERM'"),
    "io_uring": ("call(425, 1, None)", "'EPERM'"),
    "a kernel module": ("call(313, 0, b'', 0)", "'EPERM'"),
    "another kernel": ("call(246, 0, 0, None, 0)", "'EPERM'"),
    "the kernel's log": ("call(103, 3, None, 0)", "'EPERM'"),
    "the clock": ("call(227, 0, None)", "'EPERM'"),
    "the host's name": ("attempt(__import__('socket').sethostname, 'x')", "'EPERM'"),
    "rebooting": ("call(169, 0, 0, 0, None)", "'EPERM'"),
    "a file by its handle": ("call(304, 0, None, 0)", "'EPERM'"),
    "system calls of another kind": ("call(1000)", "'ENOSYS'"),
    "memory in a file that is none": ("attempt(os.memfd_create, 'x')", "'EPERM'"),
    "shared memory that stays": ("call(29, 0, 4096, 0o1600)", "'EPERM'"),
    "words in a terminal's mouth": ("call(16, 0, 0x5412, b'x')", "'EPERM'"),
    "a device of its own": ("attempt(os.mknod, '/mnt/data/disk', 0o60666, os.makedev(8, 0))", "'EPERM'"),
    "a higher bound on memory": (
        "import resource\ntry:\n    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\n"
        "except (OSError, ValueError) as e:\n    print('not raised')",
        "not raised",
    ),
    "a better place in the queue": ("attempt(os.nice, -5)", "'EPERM'"),
}


in_a_shared_one = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("name", REFUSED)
@in_a_shared_one
async def test_it_cannot_have(shared, name):
    code, expected = REFUSED[name]
    said = await look(shared, code)
    if expected == "ENOENT":
        assert set(eval(said)) == {"ENOENT"}
    else:
        assert said == expected or said in expected.split(" or ")


@in_a_shared_one
async def test_it_is_nobody_without_capabilities(shared, host):
    told = _status_of(shared._interpreter_pid)
    own = (host.inner_id,) * 3
    said = await look(shared, "print(os.getresuid(), os.getresgid())\nprint(os.getgroups(), call(157, 39, 0, 0, 0, 0))")
    users, others = said.splitlines()
    assert users == f"{own} {own}"
    groups, _, has_no_new_privileges = others.rpartition(" ")
    assert set(eval(groups)) <= (set() if os.getuid() == 0 else {host.inner_id, 65534})
    assert has_no_new_privileges == "1"
    assert int(told["CapEff"], 16) == int(told["CapPrm"], 16) == 0
    assert int(told.get("CapAmb", "0"), 16) == 0  # gVisor has none.
    assert host.inner_id or int(told["CapBnd"], 16) == 0
    assert told["Seccomp"] == "2"


def _status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t") for line in lines if ":\t" in line)


@in_a_shared_one
async def test_every_namespace_is_its_own(shared):
    kinds = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} & set(os.listdir("/proc/self/ns"))
    assert len(kinds) >= 6  # gVisor has none of cgroups.
    for kind in kinds:
        inside = os.readlink(f"/proc/{shared._interpreter_pid}/ns/{kind}")
        assert inside != os.readlink(f"/proc/self/ns/{kind}"), kind


@in_a_shared_one
async def test_the_environment_holds_nothing_of_the_service(shared):
    said = await look(shared, "print(sorted(os.environ))")
    assert set(eval(said)) <= {*root.ENVIRONMENT, "PWD"}
    assert not [name for name in eval(said) if name.startswith(("MANTA", "RAY", "PYTHON"))]


async def test_no_descriptor_of_the_service_is_open(host, tmp_path):
    with (tmp_path / "secret").open("w+") as secret:
        secret.write("secret")
        secret.flush()
        os.set_inheritable(secret.fileno(), True)
        sandbox = await host.start()
        try:
            said = await look(
                sandbox,
                "import stat\nfor n in range(64):\n    try:\n        print(n, stat.S_IFMT(os.fstat(n).st_mode) == "
                "stat.S_IFREG)\n    except OSError:\n        pass",
            )
        finally:
            await sandbox.close()
    lines = said.splitlines()
    assert len(lines) <= 5  # Input, output, errors, and the two ends that the service talks through.
    assert not [line for line in lines if line.endswith("True")]


@in_a_shared_one
async def test_nothing_of_the_host_can_be_seen(shared):
    assert sorted(eval(await look(shared, "os.listdir('/')"))) == sorted(
        ["dev", "lib", "lib64", "mnt", "packages", "python", "tmp", "usr"]
    )
    assert sorted(eval(await look(shared, "os.listdir('/dev')"))) == ["full", "null", "random", "urandom", "zero"]
    said = await look(
        shared,
        "for name in ('ray', 'vllm', 'serve_app'):\n    print(__import__('importlib.util').util.find_spec(name))",
    )
    assert said == "None\nNone\nNone"


@in_a_shared_one
async def test_a_signal_reaches_nobody_outside(shared):
    canary = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", "import time; time.sleep(60)"]
    )
    try:
        assert await look(shared, f"attempt(os.kill, {canary.pid}, 9)") == "'ESRCH'"
        assert canary.poll() is None
    finally:
        canary.kill()
        canary.wait()


async def test_killing_everybody_ends_the_sandbox_at_most(sandbox, host):
    other = await host.start()
    try:
        await sandbox.run("import os\nos.kill(-1, 9)\nos.kill(1, 9)")
        assert (await other.run("1 + 1")).logs == "2\n"
    finally:
        await other.close()


@in_a_shared_one
async def test_a_socket_of_the_host_cannot_be_reached(shared):
    name = f"\0manta-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        said = await look(shared, f"import socket; attempt(socket.socket(socket.AF_UNIX).connect, {name!r})")
    assert said == "'ECONNREFUSED'"


async def test_another_container_cannot_be_read(sandbox, host):
    other = await host.start()
    try:
        await other.run("secret = 'kestrel'; open('secret.txt', 'w').write(secret); open('/tmp/s', 'w').write(secret)")
        assert await look(sandbox, "print(os.listdir('/mnt/data'), os.listdir('/tmp'))") == "[] []"
        assert "NameError" in await look(sandbox, "secret")
        await sandbox.run("import os; os.kill(2, 9)")
        assert other.is_running
    finally:
        await other.close()


async def test_terminal_escapes_do_not_reach_the_logs(sandbox):
    code = r"print('\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m \x9b1A\x07 \u202eabc'); print('50%\r100%')"
    assert (await sandbox.run(code)).logs == "red 1A abc\n100%\n"


async def test_links_are_not_returned_as_files(sandbox, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    await sandbox.run(
        f"import os\nopen('real.txt', 'w').write('x')\nos.symlink({str(secret)!r}, 'soft')\n"
        "os.symlink('/packages', 'folder')\nopen('twice', 'w').write('y')\nos.link('twice', 'hard')\nos.mkfifo('pipe')"
    )
    assert [file.path for file in await sandbox.list_files()] == ["real.txt"]
    for path in ("soft", "pipe", "folder"):
        with pytest.raises(SandboxRefused):
            await sandbox.read(path, 0)


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../../b", "", "a\\b", "a\nb", "a//b", ".", "x" * 300, "\ud800"]
)
@in_a_shared_one
async def test_paths_that_lead_elsewhere_are_refused(shared, path):
    with pytest.raises(SandboxRefused):
        await shared.write(path, 0, b"x")
    with pytest.raises(SandboxRefused):
        await shared.read(path, 0)


async def test_files_with_names_that_cannot_be_shown_are_left_out(sandbox):
    await sandbox.run(r"open('a\x1b[31mb', 'w').close(); open(b'\xff', 'w').close(); open('good', 'w').close()")
    assert [file.path for file in await sandbox.list_files()] == ["good"]


async def test_a_zip_bomb_fills_its_own_folder_only(sandbox):
    import io
    import zipfile

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(8):
            archive.writestr(f"zeros{number}", bytes(3 << 20))
    await sandbox.write("bomb.zip", 0, packed.getvalue())
    said = await look(sandbox, "import zipfile; zipfile.ZipFile('bomb.zip').extractall()")
    assert "No space left on device" in said


async def test_the_interpreter_taken_over_can_only_talk_nonsense(sandbox):
    """Code that finds the descriptors which answers go out on may write anything there."""
    flood = "import os\nfor n in range(3, 64):\n    try:\n        os.write(n, {!r})\n    except OSError:\n        pass"
    result = await sandbox.run(flood.format(b"\xff" * 64))
    assert result.status == "died"
    assert result.reason == "It answered more than it may."


async def test_answers_that_were_not_asked_for_are_no_files(sandbox):
    frame = b'\x00\x00\x00\x13\x00\x00\x00\x00{"files": ["x", 1]}'
    code = "import os\nfor n in range(3, 64):\n    try:\n        os.write(n, {!r})\n    except OSError:\n        pass"
    result = await sandbox.run(code.format(frame))
    assert result.status == "died"


async def test_closing_the_interpreters_descriptors_ends_the_sandbox(sandbox):
    result = await sandbox.run("import os; os.closerange(0, 64)")
    assert result.status == "died"


async def test_set_user_id_programs_gain_nothing(sandbox, host):
    code = """
import shutil, stat, subprocess, sys
shutil.copy('/lib64/ld-linux-x86-64.so.2', '/mnt/data/loader')
another = 0 if os.getuid() else 1
print(attempt(os.chown, '/mnt/data/loader', another, another))
os.chmod('/mnt/data/loader', 0o6755)
ids = subprocess.run(
    ['/mnt/data/loader', sys.executable, '-c', 'import os; print(os.getresuid())'], capture_output=True, text=True
)
print(ids.stdout.strip())
paths = [os.path.join(folder, name) for folder, _, names in os.walk('/') for name in names]
marked = [path for path in paths if stat.S_ISREG(mode := os.lstat(path).st_mode) and mode & 0o6000]
print('/mnt/data/loader' in marked, all(os.statvfs(path).f_flag & os.ST_NOSUID for path in marked))
"""
    refused, ids, *others = (await look(sandbox, code)).splitlines()
    assert refused in ("EPERM", "EINVAL")
    assert ids == f"{(host.inner_id,) * 3}"
    assert others == ["True True"]


async def test_it_starts_quickly_enough_that_nobody_keeps_an_old_one(host):
    """Not a benchmark: a start that hangs would show here."""
    started = time.monotonic()
    await (await host.start()).close()
    assert time.monotonic() - started < 30
