"""Sandboxes in a pod under gVisor, whose kernel is not Linux: everything that is tried on Linux is tried there.

Needs `runsc`, on the PATH or named by MANTA_TEST_RUNSC; without one these tests are skipped.
"""

import re
import sys

import pytest

from tests import needs
from tests.contract.sandbox.pod import USER, Pod


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Pod:
    """A pod in which namespaces can be made; this is asked of gVisor itself, not of the service."""
    made = Pod(needs.runsc(), tmp_path_factory.mktemp("pod"))
    if (said := made.run("/bin/true")).returncode:
        needs.missing(f"runsc runs nothing here: {said.stdout[-300:]}")
    make_namespaces = ("unshare", "--user", "--map-root-user", "--net", "--mount", "--propagation", "unchanged")
    if (said := made.run("/usr/bin/env", *make_namespaces, "/bin/true")).returncode:
        needs.missing(f"this gVisor is too old, it has no such namespaces: {said.stdout[-300:]}")
    return made


def test_the_pod_is_an_ordinary_user_under_gvisor(pod):
    said = pod.run("/bin/sh", "-c", "id -u; id -g; grep Cap /proc/self/status; dmesg; touch /x /usr/x")
    user, group, *others = said.stdout.splitlines()
    assert user == group == str(USER)
    assert {line.split()[1] for line in others if line.startswith("Cap")} == {"0" * 16}
    assert any("Starting gVisor" in line for line in others), said.stdout
    assert said.returncode == 1


def test_root_is_refused_and_told_what_to_do(pod):
    program = "import asyncio, deployments.tools.sandbox.host as host; asyncio.run(host.prepare_host(packages=()))"
    said = pod.run(sys.executable, "-c", program, user=0)
    assert said.returncode == 1
    assert "SandboxUnavailable" in said.stdout
    assert said.stdout.rstrip().endswith("as under gVisor: run the service as one")


@pytest.mark.timeout(900)
def test_sandboxes_hold_there(pod):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "--timeout=120"]
    command += ["--ignore=tests/contract/sandbox/test_gvisor.py", "tests/contract/sandbox"]
    said = pod.run(*command, timeout_s=840)
    assert said.returncode == 0, said.stdout[-6000:]
    (summary,) = re.findall(r"^\d+ passed.*$", said.stdout, re.MULTILINE)
    assert int(summary.split()[0]) >= 100, summary
    assert "skipped" not in summary, said.stdout[-3000:]
