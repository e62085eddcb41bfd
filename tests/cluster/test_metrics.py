"""Metrics of the service and of vLLM's engine, where a monitoring system finds them."""

import httpx2
import pytest

from tests.service import CHAT, Service, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


def test_metrics_of_service_and_engine_are_shown(service: Service, http: httpx2.Client) -> None:
    body = {"model": CHAT, "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 5, "stream": True}
    for _ in range(4):
        assert http.post("/v1/chat/completions", json=body).status_code == 200
    pages = "".join(httpx2.get(f"{url}/metrics", timeout=30).text for url in service.ingress_urls())
    assert f'manta_tokens_total{{model="{CHAT}",tier="enterprise",type="completion"}}' in pages
    assert f'gen_ai_server_time_to_first_token_seconds_bucket{{le="0.5",model="{CHAT}"}}' in pages
    assert 'manta_part_up{part="database"} 1.0' in pages
    assert "manta_webhooks_waiting 0.0" in pages
    answers = ("manta_requests_total", "manta_tokens_total", "gen_ai_server_time_to_first_token", "ray_vllm_")
    wanted = (*answers, "manta_part_up", "manta_webhooks_oldest_seconds")

    def missing() -> list[str]:
        shown = "".join(httpx2.get(f"http://{target}/metrics", timeout=30).text for target in service.metrics_targets())
        return [name for name in wanted if name not in shown]

    eventually(lambda: not missing(), 120, "Ray's agents show all of them")
