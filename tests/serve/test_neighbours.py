"""What other users of the machine, and other machines, reach of a service."""

import os
import subprocess

import pytest

from tests.service import Service

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_another_user_of_the_machine_reaches_no_file_of_the_service(service: Service) -> None:
    everything = ["find", str(service.state_dir), "-mindepth", "1", "!", "-type", "l"]
    all_found = _printed(everything)
    shared = [path for path in all_found if path.startswith(str(service.ray_dir)) and os.stat(path).st_mode & 0o002]
    assert {"sockets", "logs", "runtime_resources"} <= {os.path.basename(path) for path in shared}
    parents = [service.folder, service.state_dir]
    try:
        for parent in parents:
            parent.chmod(0o755)  # As where an operator made them.
        reached = _printed([*everything, "(", "-readable", "-o", "-writable", "-o", "-executable", ")"], user="nobody")
    finally:
        for parent in parents:
            parent.chmod(0o700)
    assert reached == []


def test_other_machines_reach_no_port_of_the_service(service: Service) -> None:
    assert service.running("ingress")
    assert service.open_to_others() == {}


def _printed(command: list[str], user: str | None = None) -> list[str]:
    groups = {"group": "nogroup", "extra_groups": []} if user else {}
    done = subprocess.run(command, user=user, capture_output=True, text=True, timeout=60, check=False, **groups)
    return done.stdout.splitlines()
