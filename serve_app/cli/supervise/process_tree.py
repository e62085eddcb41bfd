"""A child process with all its descendants: found even if they detached themselves, and stopped together.

Ray's processes leave their parent's group, and some outlive their parent. So this process becomes the parent of its
orphaned descendants, and each of them carries a mark in its environment. With it a later run finds the processes that a
killed run has left behind.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from deployments.models.config import ModelConfig

MARK = "MANTA_SERVE"
_OFFLINE_SOURCES = ("demo:", "package:", "/", "./", "../")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class ProcessTree:
    """A command that runs in a session of its own and writes its output to `log_path`."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log_path: Path, *, is_log_kept: bool = False
    ) -> None:
        """Start the command; the file is emptied first, unless `is_log_kept`.

        Raises:
            OSError: the command or the file cannot be opened.
        """
        self.log_path = log_path
        self._start(command, {**environment, MARK: mark_of_this_process()}, "ab" if is_log_kept else "wb")

    @property
    def exit_status(self) -> int | None:
        """The exit status of the command, None while it runs."""
        return self._process.poll()

    def output(self) -> bytes:
        """Return the output so far."""
        return self.log_path.read_bytes()

    def interrupt(self) -> None:
        """Ask the command to stop, as Ctrl-C would."""
        self.send(signal.SIGINT)

    def send(self, number: signal.Signals) -> None:
        """Send the command a signal if it is running."""
        if self.exit_status is None:
            self._process.send_signal(number)

    def end(self, patience_s: float = 5.0) -> int:
        """Terminate all remaining processes, and kill them after `patience_s` seconds; return how many there were."""
        ended = 0
        deadline = time.monotonic() + patience_s
        while processes := self._living():
            ended = max(ended, len(processes))
            end_processes(processes, max(0.0, deadline - time.monotonic()))
        self._process.wait()
        return ended

    def _start(self, command: Sequence[str], environment: Mapping[str, str], mode: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

        def end_with_parent() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
            signal.signal(signal.SIGINT, signal.default_int_handler)

        with self.log_path.open(mode) as log:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,  # Safe with threads: it makes only two system calls.
            )

    def _living(self) -> list[psutil.Process]:
        own = psutil.Process().children(recursive=True)
        marked = marked_processes(mark_of_this_process())
        processes = {process.pid: process for process in [*own, *marked]}
        return [process for process in processes.values() if _is_living(process)]


def mark_of_this_process() -> str:
    """Return the mark of this process's descendants: its id and start time."""
    return f"{os.getpid()}:{_started(os.getpid())}"


def marked_processes(mark: str) -> list[psutil.Process]:
    """Return the other processes that carry a mark."""
    return [process for process, found in _all_marks() if found == mark]


def abandoned_processes() -> list[psutil.Process]:
    """Return the processes that carry the mark of a process that has ended."""
    return [process for process, mark in _all_marks() if not _mark_is_held(mark)]


def end_processes(processes: Iterable[psutil.Process], patience_s: float) -> None:
    """Terminate processes, and kill those that are still running after `patience_s` seconds."""
    processes = list(processes)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=patience_s)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=5)
    _reap_orphans({process.pid for process in processes})


def serve_command(config: Path, ray_folder: Path) -> list[str]:
    """Return the command that serves a configuration on its own Ray cluster, with Ray's files in `ray_folder`."""
    return [sys.executable, "-m", "deployments.local_ray", str(config), str(ray_folder)]


def serving_environment(environ: Mapping[str, str], state_dir: Path, models: Sequence[ModelConfig]) -> dict[str, str]:
    """Return `environ` with defaults added, for every process that serves these models."""
    defaults = {
        # Each ingress replica listens itself, behind the front. Serve's own proxies, HAProxy or not, depend on its
        # controller.
        "RAY_SERVE_ENABLE_DIRECT_INGRESS": "1",
        "RAY_SERVE_ENABLE_HA_PROXY": "0",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        # With 1,000, the default for throughput, a replica's last log lines are delayed, and lost when it ends. A line
        # costs the same either way (17 µs); 1,000 at once stop a replica for 15 ms.
        "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1",
        # How long a stopping ingress replica keeps running. Serve's 30 s are for load balancers outside the cluster;
        # here only the front stands before the replicas, and it knows within a second.
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "3",
        # Ray's head keeps the last 100,000 calls between actors for its dashboard: 300 MB within hours.
        "RAY_task_events_max_num_task_in_gcs": "5000",
        # A busy machine needs more than Ray's minute, and Ray would continue without the dashboard.
        "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "300",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_AUTH_MODE": "token",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "MANTA_STATE_DIR": str(state_dir),
        "PYTHONUNBUFFERED": "1",
    }
    if all(model.source.startswith(_OFFLINE_SOURCES) for model in models):
        defaults["HF_HUB_OFFLINE"] = "1"
    if all(model.device == "cpu" for model in models):
        defaults |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    # RAY_ADDRESS is ignored: this command always starts its own cluster.
    return {**defaults, **{name: value for name, value in environ.items() if name != "RAY_ADDRESS"}}


def _all_marks() -> Iterable[tuple[psutil.Process, str]]:
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with suppress(psutil.Error, OSError):
            if (mark := process.environ().get(MARK)) and _is_living(process):
                yield process, mark


def _mark_is_held(mark: str) -> bool:
    pid, _, started = mark.partition(":")
    with suppress(OSError, ValueError):
        return _started(int(pid)) == started
    return False


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks since boot, which are never adjusted.

    Raises:
        OSError: there is no such process.
    """
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[19]


def _is_living(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _reap_orphans(pids: set[int]) -> None:
    """Collect the exit status of processes that became children of this one, so that no zombies remain."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
