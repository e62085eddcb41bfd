"""Which tests share a process when two processes run them side by side; all others go wherever there is room."""

from xdist.scheduler import LoadScopeScheduling

GROUPS = {
    "tests/contract/engine/": "engine",  # Importing vLLM and starting its engines take a minute.
    "tests/contract/schemas/test_engine_reads_dialect.py": "engine",
    "tests/contract/schemas/test_engine_options.py": "engine",
    "tests/contract/schemas/test_schema_budget.py": "schemas",  # One process compiles the schemas of all of them.
    "tests/contract/sandbox/": "sandbox",  # Attempts to take more than a sandbox may, one at a time.
    "tests/contract/state/test_failover.py": "killed databases",  # They share a server, and no other test may harm one.
    "tests/contract/state/test_database_tls.py": "killed databases",
    "tests/contract/state/test_database.py::test_a_server_that_does_not_answer": "killed databases",
    "tests/contract/batches/test_stores_away.py": "killed databases",
    "tests/contract/batches/test_minute_away.py": "killed databases",
    "tests/contract/http/errors/test_state_away.py::test_a_request_to_a_database_that_hangs": "killed databases",
    "tests/contract/front/test_regions.py": "regions",  # Each file has its own fronts, started once.
    "tests/contract/front/test_requests.py": "requests",
    "tests/contract/http/operator/test_pages.py": "pages",  # Forked from one process, as are the next.
    "tests/contract/http/responses/test_repeated_responses.py": "killed replicas",
    "tests/contract/front/test_front.py": "front",
    "tests/contract/front/test_ingress_tls.py": "ingress_tls",
    "tests/contract/front/test_seconds.py": "seconds",
    "tests/contract/front/test_tls.py": "tls",
    "tests/contract/http/clients/test_node_": "node",  # npm installs into one folder.
    "tests/contract/http/agents/": "agents",
}
"""The group of the tests whose ids begin so: the first that fits. Its tests run in one process, one after the other;
the largest group first."""


class GroupScheduling(LoadScopeScheduling):
    """Gives the groups to processes as a whole and every other test by itself.

    pytest-xdist's own `--dist loadgroup` writes the group into an attribute that pytest 9.2 does not read.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((group for start, group in GROUPS.items() if nodeid.startswith(start)), nodeid)
