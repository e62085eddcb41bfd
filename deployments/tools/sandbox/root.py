"""The file system of a sandbox: a Python, its libraries, the allowed packages, and two folders to write in.

There is no /proc, no /sys, no /etc, no home and nothing of the service, and a shell only if the operator wants one.
Everything but the work folder and the scratch folder, both of them memory with a size, is read-only.
"""

import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from deployments.tools.sandbox.limits import Limits

WORK_FOLDER = "/mnt/data"
SCRATCH_FOLDER = "/tmp"  # noqa: S108 - inside the sandbox, where it is its own.
_PYTHON = "/python"
_PACKAGES = "/packages"
_DEVICES = ("null", "zero", "full", "random", "urandom")
_PROGRAMS = "/bin"
SHELL = f"{_PROGRAMS}/sh"
_SHELLS = ("bash", "dash", "sh")
_SHELL_PROGRAMS = (  # noqa: SIM905 - a list has a line for each name.
    "awk base64 basename cat chmod cmp comm cp cut date dd diff dirname du env expand expr false file find fold "
    "grep gunzip gzip head join jq ln ls md5sum mkdir mktemp mv nl od paste printf pwd readlink realpath rm rmdir "
    "sed seq sha256sum shuf sleep sort split stat tac tail tar tee test timeout touch tr tree true truncate uniq "
    "unzip wc which xargs xxd yes zip"
).split()
ENVIRONMENT = {
    "PATH": f"{_PYTHON}/bin:{_PROGRAMS}",
    "HOME": WORK_FOLDER,
    "TMPDIR": SCRATCH_FOLDER,
    "LANG": "C.UTF-8",
    "LD_LIBRARY_PATH": f"{_PYTHON}/lib",
    "MPLBACKEND": "agg",
    "MPLCONFIGDIR": f"{SCRATCH_FOLDER}/matplotlib",
    # One thread each: threads count as processes, and every one of them reserves address space.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}


class SandboxUnavailable(Exception):
    """No sandbox can be built on this host; the message has the reason and the remedy."""


@dataclass(frozen=True)
class Root:
    """The folders of this host that every sandbox sees read-only, and where.

    `unshare` is the program that creates the user and the network namespace, if bubblewrap must not do so.
    """

    bwrap: str
    binds: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...]
    unshare: str | None = None

    def arguments(self, limits: Limits) -> list[str]:
        """Return the command line before the program: namespaces, file system, environment."""
        arguments = [*self._namespaces(), "--die-with-parent", "--new-session"]
        arguments += ["--hostname", "sandbox", "--clearenv", "--cap-drop", "ALL"]
        for name, value in ENVIRONMENT.items():
            arguments += ["--setenv", name, value]
        for folder in self._folders():
            arguments += ["--perms", "0755", "--dir", folder]
        for source, target in self.binds:
            arguments += ["--ro-bind", source, target]
        for folder in self.hidden:
            arguments += ["--perms", "0755", "--tmpfs", folder, "--remount-ro", folder]
        for name in _DEVICES:
            arguments += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
        for folder, size in ((WORK_FOLDER, limits.work_bytes), (SCRATCH_FOLDER, limits.scratch_bytes)):
            arguments += ["--size", str(size), "--perms", "1777", "--tmpfs", folder]
        return [*arguments, "--remount-ro", "/", "--chdir", WORK_FOLDER]

    def _namespaces(self) -> list[str]:
        if self.unshare is None:
            return [self.bwrap, "--unshare-user", "--unshare-all"]
        made_before = [self.unshare, "--user", "--map-root-user", "--net", "--"]
        return [*made_before, self.bwrap, "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]

    def _folders(self) -> list[str]:
        """Return all parent folders; bubblewrap would create them for their owner only."""
        targets = [*(target for _, target in self.binds), "/dev/null", WORK_FOLDER]
        above = {str(folder) for target in targets for folder in Path(target).parents}
        return sorted(above - {"/"})

    @property
    def python(self) -> str:
        """The interpreter's path inside."""
        return f"{_PYTHON}/bin/python"


def find_root(packages: Sequence[str], *, has_shell: bool = False) -> Root:
    """Return the root of this host's sandboxes; raises SandboxUnavailable if bubblewrap or a package is missing.

    With `has_shell` they have this host's shell, and those of the usual programs that the host has.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxUnavailable("bubblewrap is not installed: apt-get install bubblewrap")
    standard_library = sysconfig.get_path("stdlib")
    version = Path(standard_library).name
    inner_library = f"{_PYTHON}/lib/{version}"
    binds = [(standard_library, inner_library), (os.path.realpath(sys.executable), f"{_PYTHON}/bin/python")]
    hidden = [
        f"{inner_library}/{name}"
        for name in ("site-packages", "dist-packages", "test")
        if os.path.isdir(os.path.join(standard_library, name))
    ]
    binds += [(path, path) for path in _library_folders()]
    shared = os.path.join(str(sysconfig.get_config_var("LIBDIR")), str(sysconfig.get_config_var("INSTSONAME")))
    if ".so" in shared and os.path.isfile(shared):
        binds.append((shared, f"{_PYTHON}/lib/{os.path.basename(shared)}"))
    binds += [(str(path), f"{_PACKAGES}/{path.name}") for path in _package_paths(packages)]
    binds.append((str(Path(__file__).with_name("interpreter.py")), f"{_PYTHON}/interpreter.py"))
    binds += _shell_binds() if has_shell else []
    return Root(bwrap, tuple(binds), tuple(hidden))


def _library_folders() -> list[str]:
    triple = sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu"
    folders = ["/lib64", f"/lib/{triple}", "/usr/lib64", f"/usr/lib/{triple}", "/usr/share/zoneinfo"]
    return [folder for folder in folders if os.path.isdir(folder)]


def _shell_binds() -> list[tuple[str, str]]:
    """Return the shell, under each of its names, and the programs beside it."""
    found = {name: os.path.realpath(path) for name in (*_SHELLS, *_SHELL_PROGRAMS) if (path := shutil.which(name))}
    shell = next((found[name] for name in _SHELLS if name in found), None)
    if shell is None:
        raise SandboxUnavailable("there is no shell on this host: install bash, or set code_interpreter.shell to false")
    programs = {name: path for name, path in found.items() if name in _SHELL_PROGRAMS or name == "bash"} | {"sh": shell}
    return [(path, f"{_PROGRAMS}/{name}") for name, path in programs.items()]


def _package_paths(names: Iterable[str]) -> list[Path]:
    """Return the files and folders of packages and their dependencies, and of no other package."""
    found: dict[Path, None] = {}
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            package = distribution(name)
        except PackageNotFoundError:
            advice = "install it beside the service, or leave it out of packages"
            raise SandboxUnavailable(f"the Python package {name} is not installed here: {advice}") from None
        for file in package.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not top.endswith((".pth", ".egg-link")):
                found[Path(str(package.locate_file(top)))] = None
        for text in package.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return [path for path in found if path.exists()]
