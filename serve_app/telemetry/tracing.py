"""Traces of requests, sent to an OpenTelemetry collector. Off unless a collector is configured.

The spans of a request are created after its answer, from the steps noted meanwhile, so no request waits for them. They
have names, times and counts, never content.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field, HttpUrl

from deployments import steps as names
from deployments.config import Section
from deployments.state.usage.record import RequestRecord
from deployments.steps import Step, set_trace_parent

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, SpanContext

_TRACE_PARENT = "traceparent"
_TRACE_STATE = "tracestate"
_SENT_EVERY_MS = 1_000


class TracesConfig(Section):
    """Traces.

    Args:
        endpoint: the OTLP/HTTP address of an OpenTelemetry collector, such as http://collector:4318/v1/traces.
        sample: the share of requests that are traced. If the client sends a trace context, its decision counts.
    """

    endpoint: HttpUrl
    sample: Annotated[float, Field(ge=0, le=1)] = 0.1


class TelemetryConfig(Section):
    """Telemetry in addition to metrics."""

    traces: TracesConfig | None = None


class SpanIds(NamedTuple):
    """The ids of a span, known before it is created."""

    trace_id: int
    span_id: int


class Tracer:
    """Creates the spans of requests, and exports them in a thread of its own."""

    def __init__(self, config: TracesConfig, exporter: "SpanExporter | None" = None) -> None:
        # Imported here: these take a tenth of a second to load, and traces are off by default.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        logging.getLogger("opentelemetry").setLevel(logging.ERROR)

        class GivenIds(RandomIdGenerator):
            """Random ids, except for the next span if `given` is set."""

            given: SpanIds | None = None

            def generate_trace_id(self) -> int:
                return super().generate_trace_id() if self.given is None else self.given.trace_id

            def generate_span_id(self) -> int:
                given, self.given = self.given, None
                return super().generate_span_id() if given is None else given.span_id

        self._ids = GivenIds()
        self._sampler = ParentBased(TraceIdRatioBased(config.sample))
        self._provider = TracerProvider(
            sampler=self._sampler,
            id_generator=self._ids,
            resource=Resource({SERVICE_NAME: "manta"}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                exporter or OTLPSpanExporter(endpoint=str(config.endpoint)), schedule_delay_millis=_SENT_EVERY_MS
            )
        )
        self._tracer = self._provider.get_tracer("manta")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, context: Mapping[str, str]) -> SpanIds:
        """Return the ids of the span of a request with this client `context`, and set the task's `traceparent`."""
        from opentelemetry.sdk.trace.sampling import Decision
        from opentelemetry.trace import get_current_span

        parent = self._propagator.extract(context)
        known = get_current_span(parent).get_span_context()
        trace_id = known.trace_id if known.is_valid else self._ids.generate_trace_id()
        ids = SpanIds(trace_id, self._ids.generate_span_id())
        is_sampled = self._sampler.should_sample(parent, trace_id, "").decision is Decision.RECORD_AND_SAMPLE
        set_trace_parent(f"00-{ids.trace_id:032x}-{ids.span_id:016x}-{int(is_sampled):02x}")
        return ids

    def end(
        self,
        record: RequestRecord,
        steps: list[Step],
        ended: float,
        context: Mapping[str, str],
        ids: SpanIds | None = None,
    ) -> None:
        """Create the spans of a request that ended at `ended` on the monotonic clock; `context` is the client's.

        The span of a batch line is linked to the span of its batch, which `end_batch` creates.
        """
        from opentelemetry.trace import Link, SpanKind, set_span_in_context

        # Steps are on the monotonic clock, spans in Unix nanoseconds.
        offset = record.at - (ended - record.total_s)
        parent = self._propagator.extract(context)
        is_line = record.batch_id is not None
        self._ids.given = ids
        span = self._tracer.start_span(
            f"{names.LINE} {record.route}" if is_line else f"{record.method} {record.route}",
            parent,
            SpanKind.INTERNAL if is_line else SpanKind.SERVER,
            attributes=_attributes_of(record),
            links=[Link(_context_of_batch(record.batch_id))] if record.batch_id is not None else None,
            start_time=_nanoseconds(record.at),
        )
        if span.is_recording():
            around = [(ended, set_span_in_context(span))]
            for one in sorted(steps, key=lambda step: (step.began, -step.ended)):
                one_ended = min(one.ended or ended, ended)
                while len(around) > 1 and around[-1][0] < one_ended:
                    around.pop()
                child = self._tracer.start_span(
                    one.name, around[-1][1], attributes=one.attributes, start_time=_nanoseconds(one.began + offset)
                )
                _mark_error(child, one.error)
                child.end(_nanoseconds(one_ended + offset))
                around.append((one_ended, set_span_in_context(child)))
            _mark_error(span, None if record.status < 500 else record.code or str(record.status))
        span.end(_nanoseconds(record.at + record.total_s))

    def end_batch(self, batch_id: str, endpoint: str, began: float, ended: float, counts: tuple[int, int]) -> None:
        """Create the span of a batch, `began` to `ended` in Unix seconds; `counts`: completed and failed lines."""
        self._ids.given = _ids_of_batch(batch_id)
        attributes: dict[str, Any] = {
            names.BATCH_ID: batch_id,
            names.ROUTE: endpoint,
            names.NUM_COMPLETED: counts[0],
            names.NUM_FAILED: counts[1],
        }
        span = self._tracer.start_span(names.BATCH, attributes=attributes, start_time=_nanoseconds(began))
        span.end(_nanoseconds(ended))

    def flush(self) -> None:
        """Export all spans, and wait for that."""
        self._provider.force_flush()

    def close(self) -> None:
        """Export all spans, and stop."""
        self._provider.shutdown()


def context_of(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the W3C trace context in a request's headers (w3.org/TR/trace-context), empty if there is none."""
    wanted = {_TRACE_PARENT, _TRACE_STATE}
    return {name: value.decode("latin-1") for raw, value in headers if (name := raw.decode("latin-1")) in wanted}


def _ids_of_batch(batch_id: str) -> SpanIds:
    """Return the ids of a batch's span, derived from the batch id: its lines are traced before the batch ends."""
    digits = batch_id.rpartition("_")[2]
    return SpanIds(int(digits, 16), int(digits[-16:], 16))


def _context_of_batch(batch_id: str) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(*_ids_of_batch(batch_id), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _attributes_of(record: RequestRecord) -> dict[str, Any]:
    attributes = {
        names.METHOD: record.method,
        names.ROUTE: record.route,
        names.STATUS: record.status,
        names.REQUEST_ID: record.request_id,
        names.PROVIDER: "manta",
        names.REQUEST_MODEL: record.model,
        names.INPUT_TOKENS: record.prompt_tokens or None,
        names.OUTPUT_TOKENS: record.completion_tokens or None,
        names.CACHED_TOKENS: record.cached_tokens or None,
        names.SERVICE_TIER: record.service_tier,
        names.BATCH_ID: record.batch_id,
        names.ERROR_TYPE: record.code or (str(record.status) if record.status >= 400 else None),
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _mark_error(span: "Span", error: str | None) -> None:
    if error is not None:
        from opentelemetry.trace import StatusCode

        span.set_attribute(names.ERROR_TYPE, error)
        span.set_status(StatusCode.ERROR)


def _nanoseconds(at: float) -> int:
    return int(at * 1_000_000_000)
