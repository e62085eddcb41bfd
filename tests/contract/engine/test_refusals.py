"""Every exception of vLLM's has a meaning of ours."""

import re
from http import HTTPStatus

import pytest

from deployments.models.contract.errors import (
    ContextLengthExceeded,
    EngineDied,
    EngineError,
    Overloaded,
    RequestRejected,
)

# vLLM is imported by tests that run, not by every process that collects them.


@pytest.fixture
def meanings():
    """Every exception of vLLM's, with ours for it."""
    import vllm.connections
    import vllm.entrypoints.launchers  # Loads what the replica uses, with its exceptions.
    from vllm import exceptions
    from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

    rejected = [
        exceptions.VLLMClientError("x"),
        exceptions.VLLMValidationError("x", parameter="top_k"),
        exceptions.VLLMNotFoundError("x"),
        exceptions.LoRAAdapterNotFoundError("x", "y"),
        exceptions.VLLMUnprocessableEntityError("x"),
        vllm.connections.HTTPResponseSizeExceededError(1, 2),
    ]
    died = [exceptions.VLLMServerError("x"), exceptions.GenerationError(), exceptions.RetryableRequestError()]
    died += [EngineDeadError(), EngineGenerateError("x")]
    full = [
        exceptions.GracefulHTTPError("x", HTTPStatus.SERVICE_UNAVAILABLE),
        exceptions.QueueOverflowError(),
        exceptions.MaxQueuedTokensError(),
        exceptions.ProfilerAlreadyActiveError(),
    ]
    groups = [(RequestRejected, rejected), (EngineDied, died), (Overloaded, full)]
    return [(error, meaning) for meaning, errors in groups for error in errors]


@pytest.fixture
def refused():
    from deployments.replica.refusals import refused

    return refused


def every_subclass(cls):
    return {cls}.union(*(every_subclass(sub) for sub in cls.__subclasses__()))


def test_every_exception_of_vllm_is_listed(meanings):
    from vllm import exceptions

    listed = {type(error) for error, _ in meanings}
    own = {cls for cls in every_subclass(exceptions.VLLMError) if cls.__module__.startswith("vllm.")}
    assert own - listed == {exceptions.VLLMError}  # The base class is never raised.


def test_every_exception_of_vllm_is_translated(meanings, refused):
    for error, meaning in meanings:
        with pytest.raises(EngineError) as caught, refused("messages"):
            raise error
        assert type(caught.value) is meaning, error
        assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("words", "num_tokens", "is_lower_bound"),
    [
        ("contains 4097 input tokens, which exceeds this limit even without any output tokens.", 4097, False),
        ("contains at least 4097 input tokens, which exceeds this limit even without any output tokens.", 4097, True),
        (
            "contains 90000 characters (more than 8000 characters, which is the bound for 4088 input tokens).",
            None,
            False,
        ),
    ],
)
def test_the_length_of_a_prompt_is_read(refused, words, num_tokens, is_lower_bound):
    from vllm import exceptions

    limit = "This model's maximum context length is 4096 tokens. However,"
    with pytest.raises(ContextLengthExceeded) as caught, refused("prompt"):
        raise exceptions.VLLMValidationError(f"{limit} your prompt {words}", parameter="input_tokens")
    error = caught.value
    assert (error.param, error.limit, error.num_tokens) == ("prompt", 4096, num_tokens)
    assert error.is_lower_bound is is_lower_bound


def test_a_length_without_a_limit_keeps_its_code(refused):
    with pytest.raises(RequestRejected, match=re.escape("Input length (9) exceeds")) as caught, refused("messages"):
        raise ValueError("Input length (9) exceeds model's maximum context length (8).\nMore.")
    assert (caught.value.param, caught.value.code) == ("messages", "context_length_exceeded")
