"""The files of adapters in a real bucket: fetched once, and anew when they change."""

import asyncio

import pytest

from deployments.models.adapters import fetch_adapter
from deployments.state.objects.store import BucketStore


async def test_an_adapter_comes_from_a_bucket_whole_and_anew_when_it_changes(bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("MANTA_STATE_DIR", str(tmp_path))
    for name, value in bucket.options.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    store, weights = BucketStore(bucket), bytes(range(256)) * 20_000
    for key, content in (
        ("one/adapter_config.json", b"{}"),
        ("one/adapter_model.safetensors", weights),
        ("one/training/adapter_config.json", b"not this"),
        ("one/optimizer.pt", b"nor this"),
    ):
        await store.put(key, content)
    first = await asyncio.to_thread(fetch_adapter, f"{bucket.url}/one")
    assert sorted(path.name for path in first.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    assert (first / "adapter_model.safetensors").read_bytes() == weights
    assert first.is_relative_to(tmp_path)
    assert await asyncio.to_thread(fetch_adapter, f"{bucket.url}/one/") == first
    await store.put("one/adapter_model.safetensors", b"more")
    second = await asyncio.to_thread(fetch_adapter, f"{bucket.url}/one")
    assert second != first
    assert (second / "adapter_model.safetensors").read_bytes() == b"more"
    with pytest.raises(FileNotFoundError):
        await asyncio.to_thread(fetch_adapter, f"{bucket.url}/none")
    assert not [path for path in (tmp_path / "adapters").iterdir() if path.name.startswith(".")]
