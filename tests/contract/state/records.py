"""Records of requests for tests of the request log."""

from deployments.state.usage.record import RequestRecord

NOON = 1_700_049_600.0  # 2023-11-15 12:00 UTC.


def record(number: int = 0, **values: object) -> RequestRecord:
    fields: dict[str, object] = {
        "request_id": f"req_{number}",
        "at": NOON,
        "key_id": "key_1",
        "account": "acme",
        "tier": "free",
        "method": "POST",
        "route": "/v1/chat/completions",
        "model": "acme/small",
        "status": 200,
        "code": None,
        "stream": True,
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cached_tokens": 4,
        "ttft_s": 0.1,
        "total_s": 0.5,
        **values,
    }
    return RequestRecord(**fields)  # type: ignore[arg-type]
