"""Runs inside the sandbox, and only there: one Python interpreter that keeps its variables between calls.

Standalone: it can import nothing of the service. Code that runs here shares this process and can take it over, so the
service trusts nothing that comes out: it bounds every frame, and reads it as data.

A frame is the length of its head and of its payload (unsigned 32 bits each, big-endian), the head as JSON, the payload.
Requests come in on one descriptor, answers go out on another; code prints to descriptors 1 and 2 as usual.
"""

import ast
import builtins
import contextlib
import ctypes
import io
import json
import linecache
import os
import resource
import signal
import stat
import struct
import sys
import traceback
import warnings
from typing import Any

_LENGTHS = struct.Struct(">II")
_WORK = "/mnt/data"
_PACKAGES = "/packages"
_NOBODY = 65534
_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
_CAPABILITIES_VERSION = 0x20080522
_MAX_DEPTH = 8
_MAX_REPR_CHARS = 100_000


class Interpreter:
    """Carries out requests, one after the other."""

    def __init__(self, requests: io.BufferedReader, answers: io.BufferedWriter, limits: dict[str, Any]) -> None:
        self._requests = requests
        self._answers = answers
        self._limits = limits
        self._names = {"__name__": "__main__", "__builtins__": builtins, "__doc__": None}
        self._num_calls = 0
        self._num_figures = 0
        self._is_running = False
        self._operations = {
            "run": self._run,
            "list": self._list,
            "read": self._read,
            "write": self._write,
            "remove": self._remove,
        }

    def serve(self) -> None:
        """Answer requests until there are no more."""
        signal.signal(signal.SIGINT, self._interrupt)
        self._answer({"ready": True})
        while True:
            lengths = self._requests.read(_LENGTHS.size)
            if len(lengths) < _LENGTHS.size:
                return
            head_length, payload_length = _LENGTHS.unpack(lengths)
            head = json.loads(self._requests.read(head_length))
            payload = self._requests.read(payload_length)
            try:
                self._operations[head["op"]](head, payload)
            except Exception as error:
                self._answer({"error": str(getattr(error, "strerror", None) or "failed")[:200]})

    def _answer(self, head: dict[str, Any], payload: bytes = b"") -> None:
        was_running, self._is_running = self._is_running, False  # An interruption must not cut a frame in two.
        raw = json.dumps(head).encode()
        self._answers.write(_LENGTHS.pack(len(raw), len(payload)) + raw + payload)
        self._answers.flush()
        self._is_running = was_running

    def _interrupt(self, number: int, frame: object) -> None:
        if self._is_running:
            raise KeyboardInterrupt

    def _run(self, head: dict[str, Any], payload: bytes) -> None:
        self._num_calls += 1
        self._forget_ended()
        status = "error"
        try:
            self._is_running = True
            self._execute(payload.decode("utf-8", "replace"), f"<call {self._num_calls}>")
            self._show_figures()
            status = "ok"
        except SystemExit as ending:
            status = "ok" if ending.code in (None, 0) else "error"
        except KeyboardInterrupt:
            status = "interrupted"
            self._is_running = False
            self._print_error()
        except BaseException:
            self._is_running = False
            self._print_error()
        finally:
            self._is_running = False
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):  # Code may have closed or replaced them.
                stream.flush()
        self._answer({"done": status})

    def _forget_ended(self) -> None:
        """Collect ended processes of earlier calls, which would count otherwise."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _execute(self, code: str, name: str) -> None:
        """Run code in the interpreter's namespace, and show the value of a last expression."""
        lines = code.splitlines(keepends=True)
        linecache.cache[name] = (len(code), None, lines, name)
        tree = ast.parse(code, name)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, name, "exec"), self._names)  # noqa: S102 - this is what the sandbox is for.
        if not isinstance(last, ast.Expr):
            return
        value = eval(compile(ast.Expression(last.value), name, "eval"), self._names)  # noqa: S307
        if value is not None:
            self._names["_"] = value
            print(repr(value)[:_MAX_REPR_CHARS])  # noqa: T201

    def _print_error(self) -> None:
        """Print the exception, without the frames of this file."""
        try:
            error = sys.exc_info()[1]
            assert error is not None
            shown = traceback.TracebackException.from_exception(error)
            own = [frame for frame in shown.stack if frame.filename != __file__]
            shown.stack = traceback.StackSummary.from_list(own)
            sys.stderr.write("".join(shown.format()))
        except BaseException:
            os.write(2, b"The call failed, and so did printing the reason.\n")

    def _show_figures(self) -> None:
        plots = sys.modules.get("matplotlib.pyplot")
        if plots is None:
            return
        for number in plots.get_fignums()[: self._limits["num_images"]]:
            self._num_figures += 1
            name = f"figure_{self._num_figures}.png"
            plots.figure(number).savefig(f"{_WORK}/{name}", format="png")
            with open(f"{_WORK}/{name}", "rb") as file:
                image = file.read(self._limits["image_bytes"] + 1)
            if len(image) <= self._limits["image_bytes"]:
                self._answer({"image": name}, image)
        plots.close("all")

    def _list(self, head: dict[str, Any], payload: bytes) -> None:
        """Send the regular files below the work folder, without links."""
        found = []
        for folder, folders, names in os.walk(_WORK):
            if folder.count("/") - _WORK.count("/") >= _MAX_DEPTH:
                folders.clear()
            for name in sorted(names):
                path = os.path.join(folder, name)
                about = os.lstat(path)
                if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
                    relative = os.path.relpath(path, _WORK)
                    found.append([relative, about.st_size, about.st_mtime_ns])
            if len(found) >= self._limits["num_files"]:
                break
        self._answer({"files": found[: self._limits["num_files"]]})

    def _read(self, head: dict[str, Any], payload: bytes) -> None:
        with self._open(head["path"], os.O_RDONLY) as file:
            file.seek(head["offset"])
            self._answer({"read": True}, file.read(head["size"]))

    def _write(self, head: dict[str, Any], payload: bytes) -> None:
        folder = os.path.dirname(os.path.join(_WORK, head["path"]))
        os.makedirs(folder, exist_ok=True)
        first = os.O_TRUNC if head["offset"] == 0 else 0
        with self._open(head["path"], os.O_WRONLY | os.O_CREAT | first) as file:
            file.seek(head["offset"])
            file.write(payload)
        self._answer({"written": len(payload)})

    def _remove(self, head: dict[str, Any], payload: bytes) -> None:
        os.unlink(os.path.join(_WORK, head["path"]))
        self._answer({"removed": True})

    def _open(self, path: str, flags: int) -> io.FileIO:
        descriptor = os.open(os.path.join(_WORK, path), flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(0, "not a regular file")
        return os.fdopen(descriptor, "rb" if flags == os.O_RDONLY else "wb", buffering=0)


def _drop_privileges(*, is_only_user: bool) -> None:
    """Drop the privileges that created the sandbox for good, and die with the parent process.

    Become nobody if root created it. If there is only one user, drop every capability.
    """
    libc = ctypes.CDLL(None)
    if is_only_user:
        _drop_capabilities(libc)
    elif os.getuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Drop all capabilities, also those of the bounding set, which exec would give back to user 0."""
    known = [number for number in range(64) if libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) >= 0]
    for number in known:
        libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    refused = libc.capset(struct.pack("=Ii", _CAPABILITIES_VERSION, 0), bytes(24))
    if refused or not known or any(libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) for number in known):
        sys.exit("the capabilities of a sandbox cannot be given up")


def _bound(limits: dict[str, Any]) -> None:
    bounds = {
        resource.RLIMIT_AS: limits["address_bytes"],
        resource.RLIMIT_CPU: limits["cpu_s"],
        resource.RLIMIT_NPROC: limits["num_processes"],
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    for kind, most in bounds.items():
        resource.setrlimit(kind, (most, most))
    with contextlib.suppress(ValueError):  # gVisor has no such bound; the filter of system calls refuses queues.
        resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))


def main() -> None:
    """Read the settings, set the bounds, and serve."""
    limits = json.loads(sys.argv[1])
    requests, answers = limits["requests"], limits["answers"]
    _drop_privileges(is_only_user=limits["is_only_user"])
    os.umask(0o022)
    _bound(limits)
    for descriptor in range(3, limits["open_files"]):
        if descriptor in (requests, answers):
            os.set_inheritable(descriptor, False)
        else:  # What bubblewrap read its own instructions from.
            with contextlib.suppress(OSError):
                os.close(descriptor)
    sys.path.append(_PACKAGES)
    sys.path.insert(0, "")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.filterwarnings("ignore", message=".*non-interactive.*")
    for name in limits["preload"]:
        __import__(name)
    sys.argv = [""]
    interpreter = Interpreter(os.fdopen(requests, "rb"), os.fdopen(answers, "wb"), limits)
    interpreter.serve()


if __name__ == "__main__":
    main()
