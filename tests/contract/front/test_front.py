"""The front with real HAProxy processes before small real replicas: whatever dies, the port answers."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import psutil
import pytest
import pytest_asyncio

from serve_app.front.settings import NUM_PROXIES
from tests.contract.front.replicas import STRANGER, Replica, Request, replicas, say_port, write
from tests.contract.front.running import QUICK, RunningFront, is_living, running_front
from tests.ports import free_port
from tests.waiting import eventually

CHAT = "/v1/chat/completions"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[RunningFront]:
    async with running_front() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def front(shared: RunningFront) -> RunningFront:
    """Return the front of all tests; each leaves it with replicas that have died."""
    await shared.make_whole()
    return shared


class Load:
    """Clients that ask again and again, each over a new connection, until the load ends."""

    def __init__(self, front: RunningFront, num_clients: int = 4) -> None:
        self._front = front
        self._num_clients = num_clients
        self._is_over = False
        self.answers: Counter[str] = Counter()

    async def __aenter__(self) -> "Load":
        self._http = self._front.client(headers={"connection": "close"})
        self._clients = [asyncio.create_task(self._ask()) for _ in range(self._num_clients)]
        await eventually(lambda: self.answers["200"] > self._num_clients)
        return self

    async def __aexit__(self, *error: object) -> None:
        answered = self.answers["200"]
        await eventually(lambda: self.answers["200"] >= answered + 5 * self._num_clients)
        self._is_over = True
        await asyncio.gather(*self._clients)
        await self._http.aclose()

    async def _ask(self) -> None:
        while not self._is_over:
            try:
                answer = await self._http.post(CHAT, content=b"{}")
                self.answers[str(answer.status_code)] += 1
            except httpx2.TransportError as error:
                self.answers[type(error).__name__] += 1
            await asyncio.sleep(0.005)


async def ask(front: RunningFront) -> httpx2.Response:
    return await front.looks.post(CHAT, content=b"{}")


# What dies.


async def test_requests_go_on_when_a_haproxy_is_killed_and_it_comes_back_with_the_last_table(
    front: RunningFront,
) -> None:
    async with replicas(*front.replica_ports[:2]) as running:
        await front.knows(*[replica.port for replica in running])
        await eventually(lambda: front.saved_as_up() == {replica.port for replica in running})
        for number in range(NUM_PROXIES):
            async with Load(front) as load:
                killed = front.pid_of(number)
                with front.without_agent():
                    os.kill(killed, signal.SIGKILL)
                    await front.is_back(number, killed)
                    await front.knows(*[replica.port for replica in running])
            cut = load.answers.total() - load.answers["200"]
            assert cut <= 4, load.answers  # Those that were on a connection through it.
            assert not {*load.answers} - {"200", "RemoteProtocolError", "ReadError", "ConnectError"}, load.answers


async def test_haproxy_that_is_started_anew_asks_none_of_the_many_replicas_that_have_died(front: RunningFront) -> None:
    ports = front.replica_ports[:8]
    async with replicas(ports[0]) as (living,):
        async with replicas(*ports[1:]):
            await front.knows(*ports)
        await front.knows(living.port)
        await eventually(lambda: front.saved_as_up() == {living.port})  # The agent's next round writes it down.
        assert front.saved() >= {*ports}
        async with Load(front) as load:
            for number in [*range(NUM_PROXIES)] * 3:
                killed = front.pid_of(number)
                os.kill(killed, signal.SIGKILL)
                await front.is_back(number, killed)
                await front.knows(living.port)
        assert not load.answers["503"], load.answers  # A request is given to another replica three times.


async def test_nothing_is_noticed_when_the_agent_is_killed(front: RunningFront) -> None:
    async with replicas(*front.replica_ports[:2]) as running:
        await front.knows(*[replica.port for replica in running])
        async with Load(front) as load:
            killed = front.agent()
            killed.kill()
            await eventually(lambda: not is_living(killed.pid))
            await eventually(lambda: psutil.Process(front.supervisor.pid).children())  # type: ignore[union-attr]
        assert {*load.answers} == {"200"}
    late = Replica()
    await late.start(front.replica_ports[5])
    await front.knows(late.port)  # The new agent works.
    await late.die()


async def test_nothing_is_noticed_when_the_supervisor_is_killed_and_the_next_one_takes_over(
    front: RunningFront,
) -> None:
    async with replicas(*front.replica_ports[:2]) as running:
        await front.knows(*[replica.port for replica in running])
        before = [front.pid_of(number) for number in range(NUM_PROXIES)]
        async with Load(front) as load:
            await front.kill_supervisor()
            await front.start()
        assert {*load.answers} == {"200"}
        assert [front.pid_of(number) for number in range(NUM_PROXIES)] == before
        async with Load(front) as load:
            os.kill(before[0], signal.SIGKILL)  # What was taken over is kept too.
            await front.is_back(0, before[0])
        assert load.answers["200"] > 0


async def test_haproxy_that_hangs_is_replaced() -> None:
    timings = replace(QUICK, watch_s=0.1, runtime_s=0.2)
    async with running_front(timings=timings) as front, replicas(front.replica_ports[0]) as (replica,):
        await front.knows(replica.port)
        hung = front.pid_of(1)
        os.kill(hung, signal.SIGSTOP)
        await eventually(lambda: front.pid_of(1) not in (0, hung))
        await front.knows(replica.port)
        assert (await ask(front)).status_code == 200


async def test_processes_are_replaced_without_a_gap_when_the_configuration_changes(front: RunningFront) -> None:
    async with replicas(*front.replica_ports[:2], answer=say_port) as running:
        await front.knows(*[replica.port for replica in running])
        before = [front.pid_of(number) for number in range(NUM_PROXIES)]
        is_over = asyncio.Event()

        async def stream(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")
            await is_over.wait()
            writer.write(b"5\r\nlast\n\r\n0\r\n\r\n")

        running[0].answer = running[1].answer = stream
        async with front.looks.stream("GET", "/stream") as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == "first"
            running[0].answer = running[1].answer = say_port
            async with Load(front) as load:
                await front.kill_supervisor()
                front.settings = replace(front.settings, receive_timeout_s=7.0)
                await front.start()
                await eventually(lambda: not {*before} & {front.pid_of(number) for number in range(NUM_PROXIES)})
            assert {*load.answers} == {"200"}
            is_over.set()
            assert [line async for line in lines] == ["last"]
        await eventually(lambda: not any(map(is_living, before)))


# The table.


async def test_replicas_of_the_node_are_found_and_those_that_end_are_left_out(front: RunningFront) -> None:
    async with replicas(*front.replica_ports[:3]) as running:
        await front.knows(*[replica.port for replica in running])
        assert {(await ask(front)).text for _ in range(12)} == {str(replica.port) for replica in running}
        await running[0].die()
        async with Load(front) as load:
            await front.knows(*[replica.port for replica in running[1:]])
        assert {*load.answers} == {"200"}


async def test_what_proves_nothing_gets_no_request(front: RunningFront) -> None:
    ours, theirs = front.replica_ports[0], front.replica_ports[9]
    async with replicas(ours), replicas(theirs, trust=STRANGER) as (stranger,):
        await front.knows(ours)
        await eventually(lambda: stranger.num_questions > 1)  # Its first answer has been heard by then.
        assert {(await ask(front)).text for _ in range(8)} == {str(ours)}
        assert stranger.requests == []


async def test_other_program_on_a_replicas_port_is_dropped(front: RunningFront) -> None:
    first, second = front.replica_ports[8], front.replica_ports[0]
    async with replicas(first, second) as (replica, _):
        await front.knows(first, second)
        await replica.die()
        async with replicas(first, trust=STRANGER):
            await eventually(lambda: f"127.0.0.1:{first} is dropped" in front.log)
            await front.knows(second)


async def test_replicas_that_another_front_or_replica_names_are_taken_in(front: RunningFront) -> None:
    first, second = front.replica_ports[0], free_port()
    async with replicas(first, others=[f"127.0.0.1:{second}", "127.0.0.1:1"]), replicas(second):
        await front.knows(first, second)
        seed = f"127.0.0.1:{front.settings.port}"
        async with running_front(min_port=1, max_port=1, seeds=(seed, "127.0.0.1:1", "nowhere")) as blind:
            await blind.knows(second)  # Nothing names the other one.


async def test_replicas_that_the_controller_names_are_taken_in() -> None:
    named, proxy = free_port(), free_port()
    targets = [
        {"ip": "127.0.0.1", "port": named, "instance_id": "", "name": "SERVE_REPLICA::manta#ingress#one"},
        {"ip": "127.0.0.1", "port": proxy, "instance_id": "", "name": "SERVE_PROXY_ACTOR-one"},
    ]
    page = {"target_groups": [{"protocol": "HTTP", "targets": targets}, {"protocol": "gRPC", "targets": targets}]}

    async def tell(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
        write(writer, "200 OK", json.dumps(page).encode())

    dashboard = free_port()
    url = f"http://127.0.0.1:{dashboard}"
    async with replicas(named, proxy) as (replica, _), replicas(dashboard, answer=tell) as (controller,):  # noqa: SIM117
        async with running_front(min_port=1, max_port=1, dashboard=url) as front:
            await front.knows(named)
            for page["target_groups"] in ([], None, [{"protocol": "HTTP", "targets": None}]):  # type: ignore[assignment]
                num_asked = len(controller.requests)
                await eventually(lambda n=num_asked: len(controller.requests) > n + 1)  # type: ignore[misc]
                assert (await ask(front)).status_code == 200
            await controller.die()
            num_asked = replica.num_questions
            await eventually(lambda: replica.num_questions > num_asked + 2)  # So often was the controller asked too.
            assert (await ask(front)).status_code == 200


async def test_restart_keeps_the_table_while_nothing_can_be_learned(front: RunningFront) -> None:
    async with replicas(*front.replica_ports[:2]) as running:
        await front.knows(*[replica.port for replica in running])
        await eventually(lambda: front.saved_as_up() == {replica.port for replica in running})
        await front.kill_supervisor()
        for number in range(NUM_PROXIES):
            os.kill(front.pid_of(number), signal.SIGKILL)
        await eventually(lambda: not any(front.pid_of(number) for number in range(NUM_PROXIES)))
        for replica in running:
            replica.is_silent = True  # So that only the file can know of them.
        await front.start()
        assert (await ask(front)).status_code == 200


async def test_the_front_goes_before_what_computes_where_its_user_may(front: RunningFront) -> None:
    raised = await asyncio.create_subprocess_exec(
        "nice", f"--adjustment={-10 - os.getpriority(os.PRIO_PROCESS, 0)}", "nice", stdout=asyncio.subprocess.PIPE
    )
    allowed = int((await raised.communicate())[0])
    assert [psutil.Process(front.pid_of(number)).nice() for number in range(NUM_PROXIES)] == [allowed] * NUM_PROXIES
