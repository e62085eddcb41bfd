"""LoRA adapters on vLLM's real engine: what they say, which are loaded, and that bad ones harm nobody."""

import asyncio
import json

import pytest

from deployments.models.contract.errors import EngineError, RequestRejected
from tests.adapters import make_adapter
from tests.contract.engine.conftest import MODEL, running_engine
from tests.contract.engine.replies import Collected

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

NAMES = ("one", "two", "three")


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> dict[str, str]:
    """Three adapters, one that is too wide, one that is broken, and one that is not there."""
    root = tmp_path_factory.mktemp("adapters")
    made = {name: make_adapter(root / name, "chat", seed) for seed, name in enumerate(NAMES)}
    made["wide"] = make_adapter(root / "wide", "chat", 9, rank=16)
    made["broken"] = make_adapter(root / "broken", "chat", 9)
    (root / "broken" / "adapter_model.safetensors").write_bytes(b"nothing")
    return {name: str(path) for name, path in {**made, "gone": root / "gone"}.items()}


@pytest.fixture(scope="module")
def adapted():
    with running_engine(
        "demo:chat",
        max_num_batched_tokens=128,
        enable_lora=True,
        max_loras=1,
        max_cpu_loras=2,
        max_lora_rank=8,
        worker_extension_cls="deployments.replica.resume.worker.ResumingWorker",
    ) as engine:
        yield engine


@pytest.fixture(scope="module")
def ask(adapted, sources):
    from deployments.replica.chat import ChatRunner
    from deployments.replica.completions import CompletionRunner
    from deployments.replica.runners import Adapters
    from deployments.replica.scheduling.preparing import Preparing
    from deployments.replica.schemas.budget import SchemaCompiler

    adapters, compiler = Adapters(adapted.client, MODEL, sources), SchemaCompiler(any_whitespace=False)
    runners = {
        "chat": ChatRunner(adapted.client, adapted.serving, compiler, Preparing(), MODEL, adapters),
        "completions": CompletionRunner(adapted.completions, compiler, Preparing(), MODEL, adapters),
    }
    bodies = {"chat": {"messages": [{"role": "user", "content": "hello there"}]}, "completions": {"prompt": "hello"}}
    number = iter(range(1000))

    async def ask(adapter, *, operation="chat", stream=False, reply=None, max_tokens=12, **header):
        reply = reply or Collected()
        full = {"request_id": f"req_{next(number)}", "stream": stream, "render": "wire", "cache_salt": "s"}
        full |= {"priority": 0, **({} if adapter is None else {"adapter": adapter}), **header}
        body = {**bodies[operation], "temperature": 0, "seed": 1, "max_tokens": max_tokens}
        await runners[operation].run(full, json.dumps(body).encode(), reply)
        return reply

    yield ask
    adapted.run(compiler.aclose())


def text_of(reply) -> str:
    choice = json.loads(b"".join(reply.pieces))["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


@pytest.mark.parametrize("operation", ["chat", "completions"])
def test_each_adapter_says_its_own_and_is_named_whatever_was_evicted(adapted, ask, operation):
    async def all_of() -> list[str]:
        return [text_of(await ask(adapter, operation=operation)) for adapter in (None, *NAMES)]

    first = adapted.run(all_of())
    assert len(set(first)) == 4
    assert adapted.run(all_of()) == first
    assert len(adapted.run(adapted.client.list_loras())) <= 2
    told = json.loads(b"".join(adapted.run(ask("one", operation=operation)).pieces))
    assert told["model"] == f"{MODEL}:one"
    streamed = adapted.run(ask("one", operation=operation, stream=True)).pieces[0]
    assert json.loads(streamed.split(b"\n")[0].removeprefix(b"data: "))["model"] == f"{MODEL}:one"


def test_adapters_and_the_model_answer_side_by_side_as_they_do_alone(adapted, ask):
    async def together():
        return await asyncio.gather(*(ask(adapter) for adapter in (None, *NAMES, *NAMES)))

    async def alone():
        return [text_of(await ask(adapter)) for adapter in (None, *NAMES)]

    expected = adapted.run(alone())
    assert [text_of(reply) for reply in adapted.run(together())] == [*expected, *expected[1:]]


@pytest.mark.parametrize("operation", ["chat", "completions"])
def test_a_stream_goes_on_elsewhere_with_its_adapter(adapted, ask, operation):
    whole = adapted.run(ask("two", operation=operation, stream=True, takes_notes=True))
    half = len(whole.writes) // 2
    rest = adapted.run(
        ask("two", operation=operation, stream=True, takes_notes=True, written=whole.numbers(half), created=1)
    )

    def said(pieces: list[bytes]) -> str:
        chunks = [json.loads(one[6:]) for one in b"".join(pieces).decode().split("\n\n") if one.startswith("data: {")]
        parts = [choice for chunk in chunks for choice in chunk["choices"]]
        return "".join(part["text"] if "text" in part else part["delta"].get("content") or "" for part in parts)

    assert said(whole.writes[:half]) + said(rest.pieces) == said(whole.pieces)


@pytest.mark.parametrize("name", ["wide", "broken", "gone"])
def test_an_adapter_that_cannot_be_loaded_fails_alone(adapted, ask, name):
    expected = text_of(adapted.run(ask("one")))
    with pytest.raises(EngineError, match="The adapter cannot be loaded"):
        adapted.run(ask(name))
    assert text_of(adapted.run(ask("one"))) == expected


@pytest.mark.parametrize("name", ["four", "..", "../one", "/etc", ""])
def test_a_name_that_is_not_configured_is_refused(adapted, ask, name):
    with pytest.raises(RequestRejected) as refused:
        adapted.run(ask(name))
    assert refused.value.code == "model_not_found"


def test_an_adapter_that_does_not_fit_beside_that_of_a_batch_takes_its_turn(adapted, ask):
    async def run():
        alone = [text_of(await ask(adapter, max_tokens=100)) for adapter in ("one", "two")]
        lines = [asyncio.create_task(ask("one", priority=10, max_tokens=100)) for _ in range(4)]
        while adapted.client.output_processor.get_num_unfinished_requests() < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)
        beside = text_of(await ask("two", max_tokens=100))
        return alone, [text_of(line) for line in await asyncio.gather(*lines)], beside

    alone, lines, beside = adapted.run(run())
    assert lines == alone[:1] * 4
    assert beside == alone[1]
