"""The cluster as it is read from Ray, whose answers are given here."""

import asyncio
import io
import threading

import pytest

from serve_app.telemetry import cluster as module
from serve_app.telemetry.cluster import ServeView

METRICS = b"""
# TYPE ray_vllm_num_requests_running gauge
ray_vllm_num_requests_running{model_name="demo"} 3.0
ray_vllm_num_requests_waiting{model_name="demo"} 2.0
ray_vllm_kv_cache_usage_perc{model_name="demo"} 0.5
ray_node_gpus_utilization{ip="10.0.0.5",GpuIndex="0"} 87.0
ray_node_gram_used{ip="10.0.0.5",GpuIndex="0"} 1024.0
ray_node_gram_available{ip="10.0.0.5",GpuIndex="0"} 3072.0
"""
NODES = [
    {"NodeManagerAddress": "10.0.0.5", "MetricsExportPort": 1, "Alive": True, "Resources": {"CPU": 8.0, "GPU": 1.0}},
    {"NodeManagerAddress": "10.0.0.6", "MetricsExportPort": 1, "Alive": False},
]


@pytest.fixture
def ray(monkeypatch):
    """Ray with two nodes, one of them gone; returns the addresses that were read."""
    asked = []

    def open_url(url, timeout):
        asked.append(url)
        return io.BytesIO(METRICS)

    monkeypatch.setattr(module.ray, "nodes", lambda: NODES)
    monkeypatch.setattr(module, "urlopen", open_url)
    monkeypatch.setattr(module, "_deployments", list)
    return asked


async def test_a_look_has_the_figures_of_engines_and_gpus(ray):
    seen = await ServeView().look()
    (engine,) = seen["engines"]
    assert (engine["model"], engine["running"], engine["waiting"], engine["kv_cache"]) == ("demo", 3.0, 2.0, 0.5)
    mib = 1024 * 1024
    gpu = {"index": "0", "percent": 87.0, "used_bytes": 1024 * mib, "total_bytes": 4096 * mib}
    assert [(node["is_alive"], node["gpus"], node["gpus_in_use"]) for node in seen["nodes"]] == [
        (True, 1.0, [gpu]),
        (False, 0.0, []),
    ]
    assert ray == ["http://10.0.0.5:1/metrics"]


async def test_the_deployments_alone_are_read_without_the_nodes(ray):
    assert await ServeView().deployments() == []
    assert ray == []


async def test_a_tool_is_on_off_with_its_reason_or_away(ray):
    async def raise_error():
        raise ConnectionError

    async def find_nothing():
        return None

    async def find_reason():
        return "bubblewrap is not installed."

    tools = {"file_search": find_nothing, "code_interpreter": find_reason, "mcp": raise_error}
    assert (await ServeView(tools).look())["tools"] == [
        {"name": "file_search", "state": "on", "reason": None},
        {"name": "code_interpreter", "state": "off", "reason": "bubblewrap is not installed."},
        {"name": "mcp", "state": "away", "reason": None},
    ]


async def test_looks_at_once_wait_for_one_reading_and_one_that_leaves_does_not_end_it(ray, monkeypatch):
    may_end, num_read = threading.Event(), []

    def read():
        num_read.append(1)
        may_end.wait()
        return [{"name": "demo"}]

    monkeypatch.setattr(module, "_deployments", read)
    view = ServeView()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await view.deployments()
    waiting = [asyncio.create_task(view.deployments()) for _ in range(5)]
    await asyncio.sleep(0)
    may_end.set()
    assert await asyncio.gather(*waiting) == [[{"name": "demo"}]] * 5
    assert len(num_read) == 1


async def test_a_reading_that_failed_is_tried_again(ray, monkeypatch):
    answers = iter([ConnectionError(), []])

    def read():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "_deployments", read)
    view = ServeView()
    with pytest.raises(ConnectionError):
        await view.deployments()
    assert await view.deployments() == []
