"""Names of Ray's and vLLM's that are not public and that we use: these tests fail when an upgrade changes them."""

import inspect

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]


def parameters_of(function) -> list[str]:
    return list(inspect.signature(function).parameters)


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


def test_vllms_chat_serving_has_what_answers_are_made_with():
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat

    assert parameters_of(OpenAIServingChat._effective_chat_template_kwargs) == ["self", "request"]
    assert {"token_ids", "top_logprobs", "tokenizer", "num_output_top_logprobs"} <= set(
        parameters_of(OpenAIServingChat._create_chat_logprobs)
    )


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


def test_rays_router_can_choose_without_reserving():
    from ray.serve._private.router import AsyncioRouter  # noqa: TID251

    source = inspect.getsource(AsyncioRouter.choose_replica)
    assert 'request_kwargs.pop("_reserve", True)' in source
    assert "replica_metadata=replica.replica_metadata" in source
