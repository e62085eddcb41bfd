"""A pod as Kubernetes runs it under a RuntimeClass of gVisor: a command under `runsc`, as an ordinary user.

It has no capabilities, can gain none, and sees of this machine the programs, the Python and this repository, read-only.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

ROOT = Path(__file__).parents[3]
USER = 1000


class Pod:
    """Runs commands, each in a pod of its own; `folder` is for what runsc keeps meanwhile."""

    def __init__(self, runsc: str, folder: Path) -> None:
        self._bundle = folder / "bundle"
        options = ["--network=none", "--ignore-cgroups", f"--root={folder / 'state'}"]
        self._runsc = [runsc, *options, *([] if os.getuid() == 0 else ["--rootless"])]

    def run(self, *command: str, user: int = USER, timeout_s: float = 60.0) -> "subprocess.CompletedProcess[str]":
        """Return what a command came to; its errors are part of its output.

        Raises:
            subprocess.TimeoutExpired: it took too long, and has been ended.
        """
        self._write_bundle(command, user)
        name = f"manta-{uuid4().hex}"
        try:
            return subprocess.run(
                [*self._runsc, "run", f"--bundle={self._bundle}", name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        finally:
            subprocess.run([*self._runsc, "delete", "--force", name], capture_output=True, check=False)

    def _write_bundle(self, command: tuple[str, ...], user: int) -> None:
        """Write the folder that describes a container, as the Open Container Initiative has it."""
        shutil.rmtree(self._bundle, ignore_errors=True)
        root = self._bundle / "rootfs"
        root.mkdir(parents=True)
        shown = {"/usr", "/etc", sys.base_prefix, os.path.realpath(sys.prefix), str(ROOT)}
        for name in ("bin", "sbin", "lib", "lib64"):
            if os.path.islink(f"/{name}"):
                (root / name).symlink_to(os.readlink(f"/{name}"))
            elif os.path.isdir(f"/{name}"):
                shown.add(f"/{name}")
        programs = ["/usr/bin", "/bin"]
        if bubblewrap := shutil.which("bwrap"):
            programs.insert(0, os.path.dirname(bubblewrap))
            shown.add(programs[0])
        mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}]
        mounts += [{"destination": folder, "type": "tmpfs", "source": "tmpfs"} for folder in ("/tmp", "/dev")]
        for folder in sorted(shown):
            (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
            mounts.append({"destination": folder, "type": "bind", "source": folder, "options": ["rbind", "ro"]})
        environment = {
            "PATH": ":".join(programs),
            "HOME": "/tmp",
            "USER": "manta",
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        kinds = ("bounding", "effective", "inheritable", "permitted", "ambient")
        description = {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": user, "gid": user},
                "args": list(command),
                "env": [f"{name}={value}" for name, value in environment.items()],
                "cwd": str(ROOT),
                "capabilities": {kind: [] for kind in kinds},
                "noNewPrivileges": True,
            },
            "root": {"path": "rootfs", "readonly": True},
            "hostname": "pod",
            "mounts": mounts,
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "network", "ipc", "uts")]},
        }
        (self._bundle / "config.json").write_text(json.dumps(description))
