"""Every field that vLLM's request models document is known here: accepted, or refused by name."""

import os

import pytest

from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.completions import CompletionRequest
from serve_app.schemas.embeddings import EmbeddingRequest

pytestmark = pytest.mark.filterwarnings("ignore")


def test_every_field_of_vllm_is_accepted_or_refused_by_name():
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm.entrypoints.generate.base.protocol import StreamOptions as EngineStreamOptions
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest as EngineCompletionRequest
    from vllm.entrypoints.pooling.embed.protocol import EmbeddingCompletionRequest
    from vllm.sampling_params import StructuredOutputsParams

    from serve_app.schemas.base import StreamOptions
    from serve_app.schemas.structured_outputs import StructuredOutputs

    for ours, theirs in (
        (ChatRequest, ChatCompletionRequest),
        (CompletionRequest, EngineCompletionRequest),
        (EmbeddingRequest, EmbeddingCompletionRequest),
        (StreamOptions, EngineStreamOptions),
    ):
        assert set(theirs.model_fields) - set(ours.model_fields) == set(), ours
    forms = {field.alias or name for name, field in StructuredOutputs.model_fields.items()}
    assert {name for name in StructuredOutputsParams.__dataclass_fields__ if name[0] != "_"} - forms == set()
