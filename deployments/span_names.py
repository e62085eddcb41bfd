"""The names in traces: OpenTelemetry's for HTTP and, still in development there, for generative AI; then our own.

Source: opentelemetry.io/docs/specs/semconv, "HTTP spans" and "Generative AI client spans", version 1.37.
"""

from typing import Final

from deployments.operations import Operation

METHOD: Final = "http.request.method"
ROUTE: Final = "http.route"
STATUS: Final = "http.response.status_code"
ERROR_TYPE: Final = "error.type"
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"

CACHED_TOKENS: Final = "manta.usage.cached_tokens"
REQUEST_ID: Final = "manta.request_id"
BATCH_ID: Final = "manta.batch_id"
SERVICE_TIER: Final = "manta.service_tier"
NUM_LOSSES: Final = "manta.replica_losses"
NUM_COMPLETED: Final = "manta.batch.completed"
NUM_FAILED: Final = "manta.batch.failed"

OPERATION_NAMES: Final = {
    Operation.CHAT: "chat",
    Operation.COMPLETIONS: "text_completion",
    Operation.EMBEDDINGS: "embeddings",
}
"""What the conventions call our operations; they have no names for the others."""

RECEIVE: Final = "receive"
ADMISSION: Final = "admission"
ROUTING: Final = "routing"
QUEUE: Final = "queue"
PREFILL: Final = "prefill"
DECODE: Final = "decode"
STORAGE: Final = "storage"
TOOL: Final = "execute_tool"
BATCH: Final = "batch"
LINE: Final = "batch_line"
