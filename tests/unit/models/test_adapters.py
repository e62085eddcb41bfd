"""Adapters in a configuration, in the directory of models, and on the way to a replica."""

import asyncio
from pathlib import Path

import pytest
from pydantic import ValidationError

from deployments.models.adapters import fetch_adapter
from deployments.models.client.directory import ConfiguredDirectory
from deployments.models.client.stream import RemoteStream
from deployments.models.config import ModelConfig
from deployments.models.contract.engine import EngineRequest
from tests.twins.engine import Script, ScriptedEngine

MODEL = {"id": "demo/chat", "source": "demo:chat", "max_model_len": 64}


def model(adapters, **more) -> ModelConfig:
    return ModelConfig.model_validate({**MODEL, "adapters": adapters, **more})


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "/etc", ".hidden", "a:b", "a b", "x" * 65, "a\n"])
def test_a_name_that_could_be_a_path_is_refused_with_the_configuration(name):
    with pytest.raises(ValidationError):
        model({name: {"source": "somewhere"}})


def test_an_adapter_has_a_source_or_a_folder_of_its_name():
    told = model({"one": {}, "two": {"source": "s3://bucket/two"}}, adapters_from="/srv/adapters/")
    assert [told.adapter_source(name) for name in told.adapters] == ["/srv/adapters/one", "s3://bucket/two"]
    with pytest.raises(ValidationError, match="one need a source"):
        model({"one": {}, "two": {"source": "org/two"}})
    with pytest.raises(ValidationError, match="only a model whose task is generate"):
        model({"one": {"source": "org/one"}}, task="embed")


def engine_of(told: ModelConfig) -> ScriptedEngine:
    return ScriptedEngine(told.card, lambda request: Script())


def test_adapters_are_listed_behind_their_model_and_found_by_its_id_and_aliases():
    told = model({"one": {"source": "x/y", "accounts": ["acme"]}, "two": {"source": "x/z"}}, aliases=["chat"])
    base = engine_of(told)
    directory = ConfiguredDirectory([(base, iter(told.aliases))])
    assert [card.id for card in directory.cards()] == ["demo/chat", "demo/chat:one", "demo/chat:two"]
    one = directory.find("demo/chat:one")
    assert one is directory.find("chat:one")
    assert (one.card.base, one.card.accounts, one.card.adapters) == ("demo/chat", frozenset({"acme"}), ())
    assert one.card.operations == base.card.operations
    assert [card.aliases for card in directory.cards()] == [("chat",), ("chat:one",), ("chat:two",)]
    for unknown in ("demo/chat:", "demo/chat:three", "demo/chat:one:one", "demo/chat:../one", ":one", "one"):
        assert directory.find(unknown) is None


async def test_requests_for_an_adapter_name_it_and_are_placed_apart():
    base = engine_of(model({"one": {"source": "x/y"}}))
    one = ConfiguredDirectory([(base, ())]).find("demo/chat:one")
    for affinity in ("prefix", None):
        one.run(EngineRequest("chat", "req_1", b"{}", affinity=affinity))
    assert [request.adapter for request in base.requests] == ["one", "one"]
    assert len({request.affinity for request in base.requests} | {"prefix"}) == 3


async def test_a_request_that_goes_on_elsewhere_names_its_adapter_again():
    class Nowhere:
        resume_wait_s = 1.0

    stream = RemoteStream(Nowhere(), EngineRequest("chat", "req_1", b"{}", adapter="one"))
    stream.summary.written += b""
    assert stream._header()["adapter"] == stream._header()["adapter"] == "one"
    assert "adapter" not in RemoteStream(Nowhere(), EngineRequest("chat", "req_1", b"{}"))._header()
    await asyncio.sleep(0)


def test_files_in_a_directory_are_where_they_are(tmp_path: Path):
    (tmp_path / "adapter_config.json").write_text("{}")
    assert fetch_adapter(str(tmp_path)) == tmp_path
    for missing in (str(tmp_path / "none"), "./none"):
        with pytest.raises(FileNotFoundError):
            fetch_adapter(missing)
