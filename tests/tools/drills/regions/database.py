"""The database of two regions: PostgreSQL under Patroni in each, and an etcd that has a third member elsewhere.

Patroni runs with configs/two_regions/patroni.yaml, as an operator's would.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec

import asyncpg
import httpx2

from deployments.state.database.dsn import one_form
from tests.contract.state.postgres import PROGRAMS
from tests.tools.drills.cluster import ROOT, until
from tests.tools.drills.nodes import Node, end

CONFIG = ROOT / "configs" / "two_regions" / "patroni.yaml"
POSTGRES_PORT, PATRONI_PORT, ETCD_PORT, PEER_PORT = 5432, 8008, 2379, 2380
PASSWORD = "of-the-drills"
START_S = 120.0
_USERS = {"SUPERUSER": "postgres", "REPLICATION": "replicator", "REWIND": "rewind"}
# As nobody, for PostgreSQL refuses root; able to read a Python that lies in root's home.
_AS_NOBODY = (
    "setpriv --reuid=nobody --regid=nogroup --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search"
)


def missing() -> str:
    """Return what the database of two regions needs and this machine lacks, "" where nothing."""
    if find_spec("patroni") is None or find_spec("psycopg") is None:
        return "Patroni is not installed (make install, or pip install 'patroni[etcd3,psycopg3]')"
    if shutil.which("etcd") is None or shutil.which("etcdctl") is None:
        return "etcd is not installed (on Debian: apt-get install etcd-server etcd-client)"
    return "" if PROGRAMS else "PostgreSQL's server programs are not installed (on Debian: apt-get install postgresql)"


class PairedDatabase:
    """PostgreSQL on two nodes, with etcd on those and on a witness."""

    def __init__(self, nodes: Sequence[Node], witness: Node) -> None:
        self.nodes = list(nodes)
        self.witness = witness

    @property
    def url(self) -> str:
        """The address for the service: whichever of the two is the primary."""
        hosts = ",".join(f"{node.address}:{POSTGRES_PORT}" for node in self.nodes)
        return f"postgresql+asyncpg://manta:{PASSWORD}@{hosts}/manta?target_session_attrs=read-write"

    @property
    def resolved_url(self) -> str:
        """The same, as a service has it after reading its configuration."""
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://{one_form(rest)}"

    @property
    def _etcd(self) -> str:
        """The addresses of etcd's members."""
        return ",".join(f"{one.address}:{ETCD_PORT}" for one in (*self.nodes, self.witness))

    def start(self) -> None:
        """Start all of it; returns when the first node is the primary and the second its synchronous standby."""
        for member in (*self.nodes, self.witness):
            self._start_etcd(member)
        first, second = self.nodes
        self._start_patroni(first)
        until(lambda: self.is_primary(first), START_S, "the primary", lambda: first.containers["patroni"].output[-800:])
        asyncio.run(self._make_database(first))
        self._start_patroni(second)
        self.until_paired()
        self._let_witness_lead()

    def until_paired(self, timeout_s: float = START_S) -> None:
        """Return once one node is the primary and the other its synchronous standby.

        Raises:
            TimeoutError: not in time.
        """
        until(lambda: self.standby() is not None, timeout_s, "the synchronous standby", self.describe)

    def is_primary(self, node: Node) -> bool:
        """Return whether a node says that it is the primary."""
        return self._says(node, "primary")

    def primary(self) -> Node | None:
        """Return the node of the primary, None while there is none."""
        return next((node for node in self.nodes if self.is_primary(node)), None)

    def standby(self) -> Node | None:
        """Return the node of the synchronous standby, None where there is none or no primary."""
        primary = self.primary()
        others = [node for node in self.nodes if node is not primary]
        return next((node for node in others if primary and self._says(node, "sync")), None)

    def describe(self) -> str:
        """Return what each node says of itself."""
        return "; ".join(f"{node.name}: {self._ask(node, 'patroni')}" for node in self.nodes)

    def _says(self, node: Node, role: str) -> bool:
        return self._ask(node, role).startswith("200")

    def _ask(self, node: Node, path: str) -> str:
        try:
            answer = httpx2.get(f"http://{node.address}:{PATRONI_PORT}/{path}", timeout=3)
        except httpx2.TransportError as error:
            return type(error).__name__
        return f"{answer.status_code} {answer.text[:300]}"

    def _start_etcd(self, node: Node) -> None:
        client, peer = f"http://{node.address}:{ETCD_PORT}", f"http://{node.address}:{PEER_PORT}"
        members = (*self.nodes, self.witness)
        cluster = ",".join(f"{one.name}=http://{one.address}:{PEER_PORT}" for one in members)
        options = f"--name {node.name} --data-dir /mnt/etcd --listen-client-urls {client}"
        options += f" --advertise-client-urls {client} --listen-peer-urls {peer} --initial-advertise-peer-urls {peer}"
        # Between the regions a round trip takes 150 ms: an election waits for ten of them.
        options += f" --initial-cluster {cluster} --heartbeat-interval 200 --election-timeout 2000"
        node.start("etcd", [str(shutil.which("etcd")), *options.split()], {"PATH": os.environ["PATH"]})

    def _let_witness_lead(self) -> None:
        """Have the witness lead etcd, as the page for operators says."""
        etcdctl = partial(subprocess.run, check=True, capture_output=True, text=True, env={"ETCDCTL_API": "3"})
        program = [str(shutil.which("etcdctl")), f"--endpoints={self._etcd}"]
        members = etcdctl([*program, "member", "list"]).stdout.splitlines()
        (witness,) = (one.split(",")[0] for one in members if one.split(", ")[2] == self.witness.name)
        etcdctl([*program, "move-leader", witness])

    def _start_patroni(self, node: Node) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C",
            "HOME": "/mnt/postgres",
            "PATRONI_NAME": node.name,
            "PATRONI_ETCD3_HOSTS": self._etcd,
            "PATRONI_RESTAPI_LISTEN": f"{node.address}:{PATRONI_PORT}",
            "PATRONI_RESTAPI_CONNECT_ADDRESS": f"{node.address}:{PATRONI_PORT}",
            "PATRONI_POSTGRESQL_LISTEN": f"{node.address}:{POSTGRES_PORT}",
            "PATRONI_POSTGRESQL_CONNECT_ADDRESS": f"{node.address}:{POSTGRES_PORT}",
            "PATRONI_POSTGRESQL_BIN_DIR": str(PROGRAMS[-1]),
            "PATRONI_POSTGRESQL_DATA_DIR": "/mnt/postgres/data",
            "PATRONI_POSTGRESQL_PGPASS": "/mnt/postgres/pgpass",
            **{f"PATRONI_{role}_USERNAME": user for role, user in _USERS.items()},
            **{f"PATRONI_{role}_PASSWORD": PASSWORD for role in _USERS},
        }
        # PostgreSQL's socket lies in /var/run/postgresql, which not every machine has, and which is not the node's.
        command = f"""
            mkdir -p /mnt/postgres /var/run/postgresql; chown nobody /mnt/postgres; chmod 700 /mnt/postgres
            mount -t tmpfs -o mode=1777 tmpfs /var/run/postgresql
            exec {_AS_NOBODY} {sys.executable} -m patroni {CONFIG}
        """
        node.start("patroni", ["sh", "-ec", command], environment)

    async def _make_database(self, node: Node) -> None:
        connection = await asyncpg.connect(
            host=node.address, port=POSTGRES_PORT, user="postgres", password=PASSWORD, database="postgres"
        )
        with suppress(asyncpg.DuplicateObjectError):
            await connection.execute(f"CREATE ROLE manta LOGIN PASSWORD '{PASSWORD}'")
            await connection.execute("GRANT pg_monitor TO manta")  # How far the standby is behind.
        with suppress(asyncpg.DuplicateDatabaseError):
            await connection.execute("CREATE DATABASE manta OWNER manta")
        await connection.close()


def kill_postgres(node: Node) -> None:
    """Kill PostgreSQL on a node, and leave Patroni."""
    for first in node.processes(lambda title: "bin/postgres -D" in title):
        end([first, *first.children(recursive=True)])
