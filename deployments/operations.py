"""The operations: the one list from which scopes, models, batches and tools take their names.

`Operation` names everything that a key may be allowed to do. `MODEL_OPERATIONS` describes the operations that a model
answers. `ENGINE_OPERATIONS` are those that an engine runs, each in two modules: `serve_app/operations/NAME.py` and
`deployments/replica/NAME.py`. Databases hold these names in the scopes of keys, so a name must not change.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

Task = Literal["generate", "embed", "score"]


class Operation(StrEnum):
    """An operation or a tool, by its name in the scopes of keys."""

    CHAT = "chat"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    RESPONSES = "responses"
    TOKENIZE = "tokenize"
    DETOKENIZE = "detokenize"
    RERANK = "rerank"
    SCORE = "score"
    MODERATIONS = "moderations"
    FILES = "files"
    BATCHES = "batches"
    WEBHOOKS = "webhooks"
    CODE_INTERPRETER = "code_interpreter"
    FILE_SEARCH = "file_search"
    WEB_SEARCH = "web_search"
    MCP = "mcp"
    USAGE = "usage"


@dataclass(frozen=True, slots=True)
class ModelOperation:
    """An operation that a model answers.

    `tasks` are the tasks of the models that offer it; moderations need no model and have none. `path` is its URL path,
    and its endpoint in a batch; `other_paths` lead to it too. `prompt` is the field that the body of a batch line must
    have in addition to `model`.
    """

    tasks: tuple[Task, ...]
    path: str
    prompt: str | None = None
    other_paths: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """All of its URL paths."""
        return (self.path, *self.other_paths)


_EVERY_TASK: tuple[Task, ...] = get_args(Task)
_SCORERS: tuple[Task, ...] = ("embed", "score")

MODEL_OPERATIONS: Mapping[Operation, ModelOperation] = {
    Operation.CHAT: ModelOperation(("generate",), "/v1/chat/completions", "messages"),
    Operation.COMPLETIONS: ModelOperation(("generate",), "/v1/completions", "prompt"),
    Operation.EMBEDDINGS: ModelOperation(("embed",), "/v1/embeddings", "input"),
    Operation.RESPONSES: ModelOperation(("generate",), "/v1/responses", "input"),
    Operation.TOKENIZE: ModelOperation(_EVERY_TASK, "/v1/tokenize", other_paths=("/tokenize",)),
    Operation.DETOKENIZE: ModelOperation(_EVERY_TASK, "/v1/detokenize", "tokens", ("/detokenize",)),
    Operation.RERANK: ModelOperation(_SCORERS, "/v1/rerank", "documents", ("/rerank", "/v2/rerank")),
    Operation.SCORE: ModelOperation(_SCORERS, "/v1/score", other_paths=("/score",)),
    Operation.MODERATIONS: ModelOperation((), "/v1/moderations", "input"),
}

ENGINE_OPERATIONS: tuple[Operation, ...] = tuple(
    name for name in MODEL_OPERATIONS if name not in (Operation.RESPONSES, Operation.MODERATIONS)
)
"""A response consists of chats; a moderation of patterns, and of chats with a guard model."""

_NO_TOOLS = (*MODEL_OPERATIONS, Operation.FILES, Operation.BATCHES, Operation.WEBHOOKS, Operation.USAGE)
TOOLS: tuple[Operation, ...] = tuple(name for name in Operation if name not in _NO_TOOLS)
"""The tools that the service runs itself in responses; `serve_app/schemas/responses/NAME.py` has the items of each."""


def operations_of(task: Task) -> frozenset[Operation]:
    """Return the operations that a model with this task can offer."""
    return frozenset(name for name, operation in MODEL_OPERATIONS.items() if task in operation.tasks)
