"""Bodies that nobody thought of are answered with 200, or with a 400 or 404 in the shape of their interface."""

import httpx2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serve_app.operations.safety.moderation import ModerationConfig
from serve_app.schemas.anthropic.request import CountTokensRequest, MessagesRequest
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.completions import CompletionRequest
from serve_app.schemas.embeddings import EmbeddingRequest
from serve_app.schemas.moderations import ModerationRequest
from serve_app.schemas.responses.items import AGENT_MESSAGE, EXTERNAL_ITEMS
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
    "/v1/messages": (MessagesRequest, {"model": MODEL, "max_tokens": 9, "messages": MESSAGES}),
    "/v1/messages/count_tokens": (CountTokensRequest, {"model": MODEL, "messages": MESSAGES}),
}
MODERATION = ModerationConfig(patterns={"violence": ("kill",)})
WORDS = ["system", "user", "assistant", "tool", "type", "text", "function", "name", "content", "role", MODEL, "auto"]
WORDS += ["tool_use", "tool_result", "input", "id", "tool_use_id", "input_schema", "any", "thinking"]
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
    schema, _ = BASES[path]
    fields = st.sampled_from([*schema.model_fields, "cache_salt", "priority", ""])
    return path, draw(st.dictionaries(fields, values, max_size=3))


async def test_bodies_are_answered_before_they_are_changed(world):
    world.moderation = MODERATION
    async with world.http() as http:
        answers = {path: await http.post(path, json=base) for path, (_, base) in BASES.items()}
    assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(BASES, 200)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=requests())
async def test_any_body_is_answered_with_200_400_or_404(world, asked):
    path, changes = asked
    _, base = BASES[path]
    world.principal(requests_per_minute=10**6, tokens_per_minute=10**12)
    world.moderation = MODERATION
    async with world.http() as http:
        try:
            answer = await http.post(path, json={**base, **changes})
        except (ValueError, httpx2.InvalidURL):  # The client itself cannot write the body down.
            return
    possible = {200, 400, 404} if "model" in changes else {200, 400}
    assert answer.status_code in possible, answer.text
    if answer.status_code != 200:
        keys = {"message", "type"} if path.startswith("/v1/messages") else {"message", "type", "param", "code"}
        may_be_there = {"details"} if "thread" in changes else set()
        assert set(answer.json()["error"]) - may_be_there == keys
        assert len(answer.content) < 2000


OTHERS = ("function_call_output", "compaction_trigger", "compaction", "reasoning")
external = st.sampled_from([*EXTERNAL_ITEMS, *OTHERS, AGENT_MESSAGE, "additional_tools", "configuration_update"])
FIELDS = (
    *("output", "content", "input", "action", "summary", "id", "call_id", "name", "status", "result"),
    *("tools", "arguments", "operation", "execution", "role", "text", "environment"),
    *("author", "recipient"),
)
fields = st.sampled_from(FIELDS)
items = st.builds(
    lambda kind, more: {"type": kind, "call_id": "c", **more}, external, st.dictionaries(fields, values, max_size=3)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.lists(items, max_size=3))
async def test_any_item_of_another_tool_is_answered_with_200_400_or_404(world, sent):
    world.principal(requests_per_minute=10**6, tokens_per_minute=10**12)
    async with world.http() as http:
        try:
            answer = await http.post("/v1/responses", json={"model": MODEL, "input": [*MESSAGES, *sent]})
        except (ValueError, httpx2.InvalidURL):
            return
    assert answer.status_code in {200, 400, 404}, answer.text
