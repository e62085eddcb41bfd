"""Bodies that nobody thought of: whatever is sent is answered with 200 or a 4xx in OpenAI's shape."""

import httpx2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serve_app.operations.safety.moderation import ModerationConfig
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.completions import CompletionRequest
from serve_app.schemas.embeddings import EmbeddingRequest
from serve_app.schemas.moderations import ModerationRequest
from serve_app.schemas.scoring import RerankRequest, ScoreRequest
from serve_app.schemas.tokenization import DetokenizeRequest, TokenizeRequest
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL

MESSAGES = [{"role": "user", "content": "Say hello."}]
BASES = {
    "/v1/chat/completions": (ChatRequest, {"model": MODEL, "messages": MESSAGES}),
    "/v1/completions": (CompletionRequest, {"model": MODEL, "prompt": "x"}),
    "/v1/embeddings": (EmbeddingRequest, {"model": EMBEDDING_MODEL, "input": "x"}),
    "/v1/tokenize": (TokenizeRequest, {"model": MODEL, "messages": MESSAGES}),
    "/v1/detokenize": (DetokenizeRequest, {"model": MODEL, "tokens": [72]}),
    "/v1/rerank": (RerankRequest, {"model": EMBEDDING_MODEL, "query": "x", "documents": ["y"]}),
    "/v1/score": (ScoreRequest, {"model": EMBEDDING_MODEL, "text_1": "x", "text_2": "y"}),
    "/v1/moderations": (ModerationRequest, {"input": "x"}),
}
WORDS = ["system", "user", "assistant", "tool", "type", "text", "function", "name", "content", "role", MODEL, "auto"]
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(WORDS),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner),
    max_leaves=8,
)


@st.composite
def requests(draw):
    path = draw(st.sampled_from(list(BASES)))
    schema, base = BASES[path]
    fields = st.sampled_from([*schema.model_fields, "cache_salt", "priority", ""])
    return path, {**base, **draw(st.dictionaries(fields, values, max_size=3))}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=requests())
async def test_any_body_is_answered_with_200_or_4xx(world, asked):
    path, body = asked
    world.principal(requests_per_minute=10**6, tokens_per_minute=10**12)
    world.moderation = ModerationConfig(patterns={"violence": ("kill",)})
    async with world.http() as http:
        try:
            answer = await http.post(path, json=body)
        except (ValueError, httpx2.InvalidURL):  # The client itself cannot write the body down.
            return
    assert answer.status_code in (200, 400, 404, 429), answer.text
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert len(answer.content) < 2000
