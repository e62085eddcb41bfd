"""What a service of several nodes shares: PostgreSQL, an S3 server, and Redis for Ray's head, all on one node."""

import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

from tests.contract.state.postgres import PROGRAMS, as_other_user
from tests.tools.drills.nodes import Node

POSTGRES_PORT, S3_PORT, REDIS_PORT = 5432, 9000, 6379
BUCKET = "manta"
REDIS_PASSWORD = "redis-of-the-drills"
_MAKE_TABLES = """
import asyncio, sys
from deployments.state.database.connection import connect
async def make():
    await (await connect(sys.argv[1])).close()
asyncio.run(make())
"""


def redis_program() -> str | None:
    """Return the path of Redis' or Valkey's server, None where neither is installed."""
    return shutil.which("valkey-server") or shutil.which("redis-server")


class Stores:
    """The servers on their node."""

    def __init__(self, node: Node, python: str, code: Path) -> None:
        """Take the node, and the folder whose version of Manta makes the tables."""
        self.node = node
        self._code = code
        self._python = python
        self._host = node.address
        self.has_redis = redis_program() is not None
        self.database_url = f"postgresql+asyncpg://manta@{self._host}:{POSTGRES_PORT}/manta"
        self.s3_url = f"http://{self._host}:{S3_PORT}"
        self.redis_address = f"{self._host}:{REDIS_PORT}"

    def start(self, environment: dict[str, str]) -> None:
        """Start the servers; return when the database has its tables and the bucket is there."""
        self.node.start("postgres", ["sh", "-ec", self._postgres()], environment)
        code = f"from moto.server import main; main(['-H', '{self._host}', '-p', '{S3_PORT}'])"
        self.node.start("s3", [self._python, "-c", code], environment)
        if program := redis_program():
            options = f"--bind {self._host} --port {REDIS_PORT} --appendonly yes --dir /mnt"
            options += f" --requirepass {REDIS_PASSWORD}"
            self.node.start("redis", [program, *options.split()], environment)
        until_answered(self._make_bucket, 60, "the S3 server")
        until_answered(self._make_tables, 60, "PostgreSQL")

    def _postgres(self) -> str:
        programs = PROGRAMS[-1]
        user = " ".join(as_other_user())
        options = f"-D /mnt/data -k /mnt/data -p {POSTGRES_PORT} -c listen_addresses={self._host} -c fsync=off"
        return f"""
            if [ ! -e /mnt/data/ready ]; then
              mkdir -p /mnt/data; chown nobody /mnt/data; chmod 700 /mnt/data
              {user} {programs}/initdb -D /mnt/data -U manta -A trust -E UTF8 --no-sync
              echo "host all all 10.77.0.0/24 trust" >> /mnt/data/pg_hba.conf
              echo "create database manta" | {user} {programs}/postgres --single -D /mnt/data postgres
              touch /mnt/data/ready
            fi
            rm -f /mnt/data/postmaster.pid
            exec {user} {programs}/postgres {options} -c max_connections=200
        """

    def _make_bucket(self) -> None:
        request = urllib.request.Request(f"{self.s3_url}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request, timeout=10).close()

    def _make_tables(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(self._code)}
        command = [self._python, "-c", _MAKE_TABLES, self.database_url]
        subprocess.run(command, env=environment, cwd=self._code, capture_output=True, check=True)


def until_answered(ask: object, timeout_s: float, what: str) -> None:
    """Return once the call succeeds.

    Raises:
        TimeoutError: it did not in time; the last error is its cause.
    """
    assert callable(ask)
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            ask()
            return
        except Exception as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not answer within {timeout_s:g} s") from error
        time.sleep(0.2)
