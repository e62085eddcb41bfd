"""The model replica: an engine, and the listener through which ingress replicas reach it.

Ray's `LLMServer` starts vLLM and places it; requests never pass through Serve. What of Ray's and vLLM's
interface is not public is touched here and in `submit`.
"""

import asyncio
import contextlib
import gc
import os
import tempfile
from typing import Any

import ray
from ray import serve
from ray.serve.llm import LLMConfig
from ray.serve.llm.deployment import LLMServer

from deployments.models.autoscaling import ONGOING
from deployments.models.channel.server import Bounds, ChannelServer, Reply, Runner
from deployments.models.errors import RequestRejected
from deployments.models.replica.chat import ChatRunner
from deployments.models.replica.children import Guard
from deployments.models.replica.completions import CompletionRunner
from deployments.models.replica.embeddings import EmbeddingRunner
from deployments.models.replica.submit import StallWatch
from deployments.models.schema_budget import SchemaCompiler, describe_tokenizer

# What one new schema may take: length bounds over a vocabulary of 100,000 tokens take two seconds, bombs far more.
SCHEMA_CPU_S = 5


class OperationRunner:
    """Sends each request to the runner of its operation."""

    def __init__(self, runners: dict[str, Runner], model_id: str) -> None:
        self._runners = runners
        self._model_id = model_id

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request.

        Raises:
            EngineError: it does not run, or breaks off.
        """
        runner = self._runners.get(header["operation"])
        if runner is None:
            message = f"The model `{self._model_id}` does not support this operation."
            raise RequestRejected(message, "model", "unsupported_value")
        await runner.run(header, body, reply)


class ModelServer(LLMServer):  # type: ignore[misc]  # Ray ships no types for it.
    """One replica of a model deployment."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it.
        self, llm_config: LLMConfig, bounds: tuple[int, int], drain_s: float, stall_s: float
    ) -> None:
        """Start the engine, then listen.

        `bounds` is how many requests may run in the engine, and how many may wait there beyond that.
        A replica that is told to go waits `drain_s` seconds at most for what runs on it, and one whose engine
        moves nothing for `stall_s` seconds while requests run reports itself unhealthy.
        """
        if _has_files(llm_config):
            # The files are here already; the task that would fetch them imports vLLM only to find that out.
            llm_config.get_or_create_callback().ctx.run_init_node = False
        await super().__init__(llm_config)
        self._drain_s = drain_s
        self._guard = Guard()
        self._watch = StallWatch(self.engine._engine_client, stall_s)
        runner = OperationRunner(self._runners(llm_config.model_id), llm_config.model_id)
        self._channel = ChannelServer(runner, Bounds(*bounds))
        self._address = await self._channel.start(ray.util.get_node_ip_address(), _socket_path())
        gc.collect()
        gc.freeze()  # vLLM and its model classes stay for good; the collector need not walk them for every request.

    def _runners(self, model_id: str) -> dict[str, Runner]:
        engine = self.engine  # Ray's engine holds vLLM's serving classes under these names.
        runners: dict[str, Runner] = {}
        if engine._oai_serving_chat is not None:
            runners["chat"] = ChatRunner(
                engine._engine_client, engine._oai_serving_chat, self._schemas_of(engine), model_id
            )
        if engine._oai_serving_completion is not None:
            runners["completions"] = CompletionRunner(engine._oai_serving_completion, model_id)
        if engine._oai_serving_embedding is not None:
            runners["embeddings"] = EmbeddingRunner(engine._oai_serving_embedding, model_id)
        return runners

    def _schemas_of(self, engine: Any) -> SchemaCompiler:
        """Return the compiler that tries schemas out with this engine's own vocabulary."""
        config = engine._engine_client.vllm_config
        tokenizer = engine._oai_serving_chat.renderer.tokenizer
        self._schemas = SchemaCompiler(
            describe_tokenizer(tokenizer, config.model_config.get_vocab_size()),
            any_whitespace=not config.structured_outputs_config.disable_any_whitespace,
            cpu_s=SCHEMA_CPU_S,
        )
        self._schemas_start = asyncio.create_task(self._schemas.start())  # Takes seconds; the first schema waits.
        return self._schemas

    async def record_replica_metadata(self) -> dict[str, Any]:
        """Return where this replica listens; Serve hands it to every handle (called by Serve, once)."""
        return {"channel": self._address}

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return how many requests run and wait here (called by Serve, periodically)."""
        return {ONGOING: float(self._channel.num_ongoing)}

    async def check_health(self) -> None:
        """Raise when this replica must be replaced (called by Serve, periodically)."""
        await super().check_health()
        self._watch.check()

    async def __del__(self) -> None:
        """Let what runs come to its end, then stop the engine (called by Serve on shutdown)."""
        channel = getattr(self, "_channel", None)
        if channel is not None:
            await channel.drain(self._drain_s)
            await channel.close()
            with contextlib.suppress(OSError):
                os.unlink(self._address["path"])
        if (schemas := getattr(self, "_schemas", None)) is not None:
            await schemas.aclose()
        engine = getattr(self, "engine", None)
        if engine is not None:
            await engine.shutdown()
            await asyncio.to_thread(engine._engine_client.shutdown)


def _has_files(llm_config: LLMConfig) -> bool:
    """Return whether the model is a directory, so that nothing needs to be fetched."""
    source = llm_config.model_loading_config.model_source
    return isinstance(source, str) and os.path.isdir(source)


def _socket_path() -> str:
    """Return the path of this replica's Unix socket, in a folder that only its user may enter."""
    folder = os.path.join(tempfile.gettempdir(), f"manta-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = serve.get_replica_context().replica_id.unique_id
    return os.path.join(folder, f"{name}.sock")
