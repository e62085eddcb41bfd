"""The version before this one, from the repository: a service is moved from it to this one under load."""

import subprocess
from pathlib import Path

FORMER = "6095dd884ca13b6776cdfcd3cfdbb55fd9adf81c"
"""The commit of that version."""
_ROOT = Path(__file__).parents[3]


def reason() -> str:
    """Return why that version cannot run here, "" where it can."""
    done = _git("cat-file", "-e", f"{FORMER}^{{commit}}")
    return f"the commit {FORMER[:10]} is not in this repository" if done.returncode else ""


def unpack(folder: Path) -> Path:
    """Put that version's code into a folder; return the folder.

    Raises:
        CalledProcessError: the repository does not have it.
    """
    folder.mkdir(parents=True)
    packed = _git("archive", FORMER)
    packed.check_returncode()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    trusted = ["-c", "safe.directory=*"]
    return subprocess.run(["git", *trusted, *arguments], cwd=_ROOT, capture_output=True, check=False)
