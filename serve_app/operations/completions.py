"""The operation behind /v1/completions, the older interface that continues a plain text."""

from deployments.operations import Operation
from serve_app.operations.completion_pieces import CompletionBody, CompletionChunks, parse_piece
from serve_app.operations.generation import GenerationOperation
from serve_app.schemas.completions import CompletionChunk, CompletionRequest


class CompletionOperation(GenerationOperation[CompletionRequest]):
    """Create a completion of plain text, streamed as server-sent events when the body asks for it."""

    name = Operation.COMPLETIONS
    schema = CompletionRequest
    answer = "openai.types.Completion"
    events = CompletionChunk
    _id_prefix = "cmpl-"
    _whole = CompletionBody
    _chunks = CompletionChunks
    _parse = staticmethod(parse_piece)


OPERATION = CompletionOperation
