"""Names of Ray's and vLLM's that are not public and that we use: these tests fail when an upgrade changes them."""

import inspect
import re

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]


def parameters_of(function) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_schemas_are_as_deep_as_vllm_takes_them():
    from vllm import sampling_params

    from deployments.replica.schemas.rewritten import MOST_LEVELS

    assert sampling_params.MAX_STRUCTURED_OUTPUT_JSON_NESTING == MOST_LEVELS
    assert sampling_params.STRUCTURAL_TAG_WRAPPER_NESTING >= 8


def test_vllm_takes_requests_the_way_submit_hands_them_over():
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.input_processor import InputProcessor
    from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
    from vllm.v1.engine.parallel_sampling import ParentRequest

    assert parameters_of(AsyncLLM._add_request) == ["self", "request", "prompt", "parent_req", "index", "queue"]
    assert parameters_of(AsyncLLM._run_output_handler) == ["self"]
    assert parameters_of(AsyncLLM.abort) == ["self", "request_id", "internal"]
    assert parameters_of(AsyncLLM.check_admission) == ["self", "n", "request_id"]
    assert parameters_of(RequestOutputCollector.__init__) == ["self", "output_kind", "request_id"]
    assert parameters_of(InputProcessor.assign_request_id)[-1] == "request"
    assert {"request_id", "prompt", "params", "supported_tasks", "priority"} <= set(
        parameters_of(InputProcessor.process_inputs)
    )
    assert "index" in parameters_of(ParentRequest.get_child_info)
    assert "req_state.queue.put(request_output)" in inspect.getsource(OutputProcessor.process_outputs)


def test_vllm_takes_requests_that_go_on_the_way_they_are_handed_over():
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.detokenizer import BaseIncrementalDetokenizer, IncrementalDetokenizer
    from vllm.v1.engine.output_processor import OutputProcessor, RequestState

    # What `written.add_request` does in its place.
    adding = inspect.getsource(AsyncLLM._add_request)
    assert "self.output_processor.add_request(request, prompt, parent_req, index, queue)" in adding
    assert "await self.engine_core.add_request_async(request)" in adding
    assert adding.count("self.output_processor.") == 2  # The other asks whether the request is known.
    assert parameters_of(IncrementalDetokenizer.from_new_request) == ["tokenizer", "request"]
    assert parameters_of(BaseIncrementalDetokenizer.update) == ["self", "new_token_ids", "stop_terminated"]
    assert parameters_of(BaseIncrementalDetokenizer.get_next_output_text) == ["self", "finished", "delta"]
    processing = inspect.getsource(OutputProcessor.process_outputs)
    assert re.search(
        r"req_state\.detokenizer\.update\(\s+new_token_ids, finish_reason == FinishReason.STOP\s+\)", processing
    )
    assert "self.sent_tokens_offset = self.detokenizer.num_output_tokens()" in inspect.getsource(RequestState)


def test_vllms_scheduler_leads_grammars_as_those_that_go_on_are_led():
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.structured_output import StructuredOutputManager
    from vllm.v1.structured_output.request import StructuredOutputRequest

    made = inspect.getsource(StructuredOutputManager.grammar_init)
    assert "grammar = self.executor.submit(self._create_grammar, request)" in made
    assert "self.structured_output_manager.grammar_init(req)" in inspect.getsource(EngineCore.preprocess_add_request)
    assert "isinstance(self._grammar, Future)" in inspect.getsource(StructuredOutputRequest)
    stepping = inspect.getsource(Scheduler.update_from_output)
    assert stepping.count("self.structured_output_manager.accept_tokens(") == 1
    parts = (StructuredOutputManager.accept_tokens, StructuredOutputManager._get_constraint_bounds)
    read = "".join(map(inspect.getsource, (*parts, StructuredOutputManager._get_reasoner)))
    assert set(re.findall(r"\brequest\.(\w+)", read)) == {
        "use_structured_output",
        "structured_output_request",
        "all_token_ids",
        "prompt_token_ids",
        "request_id",
    }


def seed_of_a_token(generator) -> int:
    import torch

    return torch.randint(0, 2**31, (1,), generator=generator, dtype=torch.long).item()


def test_vllm_takes_requests_whose_output_has_begun_as_those_that_it_preempted():
    import torch
    from vllm.sampling_params import SamplingParams
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.sample.ops import topk_topp_sampler
    from vllm.v1.worker import gpu_model_runner
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    from deployments.replica.engine import _WORKER_EXTENSION
    from deployments.replica.resume.worker import ResumedState, ResumingWorker
    from deployments.replica.signals import as_resumed

    assert f"{ResumingWorker.__module__}.{ResumingWorker.__name__}" == _WORKER_EXTENSION
    assert "worker_extension_cls" in inspect.getsource(WorkerWrapperBase.init_worker)
    # The state of a new request is made by this name, which `ResumedState` takes.
    assert gpu_model_runner.CachedRequestState is ResumedState
    source = inspect.getsource(gpu_model_runner)
    assert source.count(" CachedRequestState(") == 1
    assert "for i in discard_sampled_tokens_req_indices:" in source
    assert "gen.set_offset(gen.get_offset() - 4)" in source
    params = SamplingParams(seed=5, extra_args=as_resumed({"other": 1}, [[7, 8], [9]]))
    state = ResumedState(
        req_id="one",
        prompt_token_ids=[1, 2],
        mm_features=[],
        sampling_params=params,
        generator=torch.Generator().manual_seed(5),
        block_ids=([0],),
        num_computed_tokens=0,
        output_token_ids=[],
    )
    assert (state.output_token_ids, state.num_tokens, state.num_prompt_tokens) == ([7, 8, 9], 5, 2)
    expected = torch.Generator().manual_seed(5)
    seeds = [seed_of_a_token(expected) for _ in range(6)]
    for number in (3, 4):  # Draws that made no token are taken back.
        for _ in range(2):
            assert seed_of_a_token(state.generator) == seeds[number]
            state.generator.set_offset(state.generator.get_offset() - 4)
        assert seed_of_a_token(state.generator) == seeds[number]
        state.output_token_ids.append(1)
    assert seed_of_a_token(state.generator) == seeds[5]
    on_cpu = inspect.getsource(topk_topp_sampler.TopKTopPSampler.forward_cpu)
    assert re.search(r"torch\.randint\(\s+0, 2\*\*31, \(1,\), generator=gen, dtype=torch\.long\s+\)", on_cpu)
    assert "q[i].exponential_(generator=generator)" in inspect.getsource(topk_topp_sampler.random_sample)
    # The statistics of a prompt, which would refuse that more than the prompt is cached.
    assert "if request.prefill_stats and request.num_preemptions <= 0:" in inspect.getsource(Scheduler.schedule)


def test_vllms_completion_serving_makes_a_chunk_of_each_part_with_tokens():
    from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion

    source = inspect.getsource(OpenAIServingCompletion.completion_stream_generator)
    assert source.count("continue\n") == 1
    assert re.search(r"not delta_text\s+and not delta_token_ids\s+and not previous_num_tokens\[i\]", source)
    assert "i = output.index + prompt_idx * num_choices" in source
    assert source.count("yield f") == 4  # A chunk, the usage, and errors of two kinds.


def test_vllms_completion_serving_asks_the_engine_as_whole_answers_are_gathered():
    from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
    from vllm.outputs import CompletionOutput, RequestOutput

    source = inspect.getsource(OpenAIServingCompletion._create_completion)
    assert re.search(r"self\.engine_client\.generate\(\s+engine_input,\s+sampling_params,\s+request_id_item,", source)
    assert {"index", "text", "token_ids", "logprobs", "finish_reason", "stop_reason"} <= set(
        parameters_of(CompletionOutput)
    )
    assert {"prompt_token_ids", "outputs", "finished", "num_cached_tokens"} <= set(parameters_of(RequestOutput))


def test_vllms_chat_serving_has_what_answers_are_made_with():
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat

    assert parameters_of(OpenAIServingChat._effective_chat_template_kwargs) == ["self", "request"]


def test_rays_engine_holds_vllms_serving_classes_under_their_names():
    from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine  # noqa: TID251

    source = inspect.getsource(VLLMEngine)
    for name in ("_engine_client", "_oai_serving_chat", "_oai_serving_completion", "_oai_serving_embedding"):
        assert f"self.{name} " in source or f"self.{name}:" in source


def test_rays_engine_starts_vllms_with_the_executor_that_its_configuration_names():
    from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine  # noqa: TID251
    from ray.serve.llm.deployment import LLMServer

    start = VLLMEngine._start_async_llm_engine
    assert parameters_of(start) == ["self", "vllm_engine_args", "vllm_engine_config", "placement_group"]
    assert "Executor.get_class(vllm_engine_config)" in inspect.getsource(start)
    assert "self.engine = self._engine_cls(self._llm_config)" in inspect.getsource(LLMServer.start)
    assert "await self.engine.start()" in inspect.getsource(LLMServer._start_engine)


def test_vllms_statistics_are_added_up_without_losing_any():
    from vllm.v1.metrics import loggers
    from vllm.v1.metrics.stats import IterationStats

    from deployments.replica import engine_metrics

    assert set(vars(IterationStats())) == {
        *engine_metrics._LISTS,
        *engine_metrics._COUNTS,
        "iteration_timestamp",
        "prompt_token_stats",
    }
    source = inspect.getsource(loggers.PrometheusStatLogger.record)
    levels = {"num_running_reqs", "num_waiting_reqs", "num_skipped_waiting_reqs", "kv_cache_usage"}
    levels |= {"running_lora_adapters", "waiting_lora_adapters", "num_kv_fetch_reqs_by_stage"}
    told_at_once = {"connector_prefix_cache_stats", "spec_decoding_stats", "kv_connector_stats", "perf_stats"}
    told_at_once |= {"kv_cache_eviction_events", "ec_connector_stats"}
    assert set(re.findall(r"scheduler_stats\.(\w+)", source)) == {*levels, *told_at_once, "prefix_cache_stats"}


def test_gathered_statistics_reach_rays_metrics_in_time(monkeypatch):
    from vllm.v1.metrics import ray_wrappers
    from vllm.v1.metrics.stats import IterationStats, SchedulerStats

    from deployments.replica import engine_metrics

    recorded = []
    monkeypatch.setattr(ray_wrappers.RayPrometheusStatLogger, "record", lambda self, *told: recorded.append(told))
    logger = engine_metrics.GatheringStatLogger.__new__(engine_metrics.GatheringStatLogger)
    clock = [100.0]
    monkeypatch.setattr(engine_metrics.time, "monotonic", lambda: clock[0])

    def step(running: int, waited_s: float) -> None:
        clock[0] += waited_s
        scheduler, iteration = SchedulerStats(num_running_reqs=running), IterationStats()
        scheduler.prefix_cache_stats.queries, scheduler.prefix_cache_stats.hits = 10, 3
        iteration.num_generation_tokens = 2
        iteration.inter_token_latencies_iter = [0.1, 0.3]
        iteration.time_to_first_tokens_iter = [0.5]
        iteration.prompt_token_stats.total = 7
        logger.record(scheduler, iteration)

    step(2, 0.0)  # The first is reported at once.
    for _ in range(5):
        step(2, 0.04)
    assert len(recorded) == 1
    step(2, 0.06)
    assert len(recorded) == 2
    scheduler, iteration = recorded[1][:2]
    assert (scheduler.prefix_cache_stats.queries, scheduler.prefix_cache_stats.hits) == (60, 18)
    assert (iteration.num_generation_tokens, iteration.prompt_token_stats.total) == (12, 42)
    assert iteration.inter_token_latencies_iter == [0.2] * 6
    assert iteration.time_to_first_tokens_iter == [0.5] * 6
    step(0, 0.01)  # The last is reported at once, so that no request seems to run.
    assert len(recorded) == 3
    assert recorded[2][1].num_generation_tokens == 2


def test_time_between_tokens_that_come_in_pieces_is_that_of_each():
    from vllm.v1.metrics.stats import IterationStats

    from deployments.replica import engine_metrics

    logger = engine_metrics.GatheringStatLogger.__new__(engine_metrics.GatheringStatLogger)
    step = IterationStats()
    step.num_generation_tokens = 16 + 1 + 1  # A piece, a token of a stream, and the first one of another.
    step.inter_token_latencies_iter = [1.6, 0.1]
    step.time_to_first_tokens_iter = [0.5]
    logger.record(None, step)
    assert step.inter_token_latencies_iter == pytest.approx([0.1])


def test_serve_opens_the_port_of_a_replica_on_the_address_that_is_put_in_its_place():
    from ray.serve._private import replica  # noqa: TID251

    source = inspect.getsource(replica.Replica._on_initialized)
    assert 'add_port_to_grpc_server(self._server, "[::]:0")' in source
    assert "ray.util.get_node_ip_address()" in inspect.getsource(replica.ReplicaActor.is_allocated)


def test_rays_router_can_choose_without_reserving():
    from ray.serve._private.router import AsyncioRouter  # noqa: TID251

    source = inspect.getsource(AsyncioRouter.choose_replica)
    assert 'request_kwargs.pop("_reserve", True)' in source
    assert "replica_metadata=replica.replica_metadata" in source


def test_vllm_marks_tokens_without_an_adapter_by_a_negative_index_and_its_operations_for_cpus_miss_it():
    import torch
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu, utils

    from deployments.replica.resume.worker import leave_bare_tokens

    assert "if x > 0 else -1 for x in mapping.prompt_mapping" in inspect.getsource(utils)
    leave_bare_tokens()
    leave_bare_tokens()
    inputs, weights = torch.ones(2, 3), torch.ones(2, 1, 4, 3)
    for operation in (lora_ops.bgmv_shrink, punica_cpu.bgmv_shrink):
        output = torch.zeros(2, 4)
        operation(inputs, weights, output, torch.tensor([-1, 1]), 1.0)
        assert output.tolist() == [[0.0] * 4, [3.0] * 4]
    assert punica_cpu.bgmv_expand is lora_ops.bgmv_expand
    assert punica_cpu.bgmv_expand_slice is lora_ops.bgmv_expand_slice
