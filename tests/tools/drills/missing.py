"""What the drills need of the machine: root, Linux' namespaces, and PostgreSQL's programs."""

import os
import shutil
import subprocess

from tests.contract.state.postgres import PROGRAMS

STATUS = 77
"""The exit status of a run that could not be made."""
NO_REDIS = "neither valkey-server nor redis-server is installed (on Debian: apt-get install redis-server)"
_TRIAL = "ip link add trial type bridge && ip netns add trial && ip netns delete trial"


def reason() -> str:
    """Return why no drill can be run here, "" where they can."""
    if os.getuid() != 0:
        return "they make network namespaces, which only root may"
    if not all(map(shutil.which, ("ip", "unshare", "mount"))):
        return "ip, unshare or mount is missing (on Debian: apt-get install iproute2 util-linux mount)"
    if not PROGRAMS:
        return "PostgreSQL's server programs are not installed (on Debian: apt-get install postgresql)"
    trial = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c"]
    mounted = f"mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && {_TRIAL}"
    done = subprocess.run([*trial, mounted], capture_output=True, text=True, check=False)
    return f"no network namespace can be made here: {done.stderr.strip()}" if done.returncode else ""
