"""The error tree: what each refusal says on the wire, and that no lower error goes untranslated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError, OperationalError

from deployments.limits.contract import Denied
from deployments.models.contract import errors as engine_errors
from deployments.state.objects.store import StoreFull, StoreUnavailable
from serve_app.errors import api, capacity, translate
from serve_app.errors.api import ApiError
from serve_app.errors.translate import translate_error

SECRET = "sk-abcdefghijklmnopqrstuvwxyz"
FIXED = "The server had an error processing your request. Sorry about that!"


def every_subclass(cls):
    return {cls}.union(*(every_subclass(sub) for sub in cls.__subclasses__()))


GOLDEN = [
    (ApiError(), 500, "server_error", None, None, FIXED),
    (
        api.UnparsableBody("It is empty."),
        400,
        "invalid_request_error",
        None,
        None,
        "We could not parse the JSON body of your request. It is empty. (HINT:",
    ),
    (
        api.ContextLengthExceeded("messages", 8192, 9000),
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "messages",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens, with",
    ),
    (
        api.UnknownPreviousResponse("resp_1"),
        400,
        "invalid_request_error",
        "previous_response_not_found",
        "previous_response_id",
        "Previous response with id 'resp_1' not found.",
    ),
    (
        api.Unauthenticated(),
        401,
        "invalid_request_error",
        None,
        None,
        "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth "
        "(i.e. Authorization: Bearer YOUR_KEY).",
    ),
    (
        api.InvalidKey(SECRET),
        401,
        "invalid_request_error",
        "invalid_api_key",
        None,
        "Incorrect API key provided: sk-ab***wxyz.",
    ),
    (
        api.KeyRevoked(),
        401,
        "invalid_request_error",
        "invalid_api_key",
        None,
        "This API key was revoked or has expired while the answer was generated.",
    ),
    (
        api.PermissionDenied("This API key may not create embeddings."),
        403,
        "invalid_request_error",
        None,
        None,
        "This API key may not create embeddings.",
    ),
    (
        api.RetentionForbids("files", "purpose"),
        403,
        "invalid_request_error",
        "retention_policy",
        "purpose",
        "This API key's retention policy does not allow files.",
    ),
    (
        api.NotFound("No such File object: file-x"),
        404,
        "invalid_request_error",
        None,
        None,
        "No such File object: file-x",
    ),
    (
        api.ModelNotFound("acme/chat"),
        404,
        "invalid_request_error",
        "model_not_found",
        "model",
        "The model `acme/chat` does not exist or you do not have access to it.",
    ),
    (
        api.UnknownUrl("POST", "/v1/x"),
        404,
        "invalid_request_error",
        "unknown_url",
        None,
        "Invalid URL (POST /v1/x)",
    ),
    (
        api.MethodNotAllowed("GET", "/v1/embeddings", ("POST",)),
        405,
        "invalid_request_error",
        None,
        None,
        "Not allowed to GET on /v1/embeddings.",
    ),
    (
        api.ReceiveTimeout(30),
        408,
        "invalid_request_error",
        None,
        None,
        "The body of your request did not arrive within 30 seconds.",
    ),
    (
        api.Conflict("Cannot cancel a batch with status 'completed'."),
        409,
        "invalid_request_error",
        None,
        None,
        "Cannot cancel a batch with status 'completed'.",
    ),
    (
        api.BodyTooLarge(1024, "file"),
        413,
        "invalid_request_error",
        None,
        "file",
        "The body of your request is larger than the limit of 1024 bytes.",
    ),
    (
        api.UnsupportedMediaType("gzip"),
        415,
        "invalid_request_error",
        "unsupported_media_type",
        None,
        "Unsupported content encoding: gzip. Please send the body as it is",
    ),
    (
        capacity.RateLimited(Denied("requests", 10, 10, 1, 6.0), "org-a", "acme/chat"),
        429,
        "requests",
        "rate_limit_exceeded",
        None,
        "Rate limit reached for acme/chat in organization org-a on requests per min (RPM): Limit 10, Used 10, "
        "Requested 1. Please try again in 6s.",
    ),
    (
        capacity.RateLimited(Denied("tokens", 50000, 47949, 3006, 1.146), "org-a"),
        429,
        "tokens",
        "rate_limit_exceeded",
        None,
        "Rate limit reached in organization org-a on tokens per min (TPM): Limit 50000, Used 47949, Requested 3006. "
        "Please try again in 1.146s.",
    ),
    (
        capacity.RateLimited(Denied("tokens", 30000, 0, 34307, None), "org-a", "acme/chat"),
        429,
        "tokens",
        "rate_limit_exceeded",
        None,
        "Request too large for acme/chat in organization org-a on tokens per min (TPM): Limit 30000, Requested 34307. "
        "The input or output tokens must be reduced in order to run successfully.",
    ),
    (
        capacity.RateLimited(Denied("requests", 0, 0, 1, None), "org-a"),
        429,
        "requests",
        "rate_limit_exceeded",
        None,
        "Request too large in organization org-a on requests per min (RPM): Limit 0, Requested 1. Ask the operator",
    ),
    (
        capacity.QuotaExceeded(),
        429,
        "insufficient_quota",
        "insufficient_quota",
        None,
        "You exceeded your current quota.",
    ),
    (
        capacity.ResourceUnavailable(),
        429,
        "resource_unavailable",
        "resource_unavailable",
        None,
        "Resource unavailable: the model has no place for flex requests right now.",
    ),
    (api.ClientGone(), 499, "invalid_request_error", "request_cancelled", None, "The request was cancelled"),
    (capacity.Unavailable("The state is away."), 503, "server_error", None, None, "The state is away."),
    (
        capacity.ToolOff("The code interpreter is off."),
        503,
        "server_error",
        "tool_off",
        None,
        "The code interpreter is off.",
    ),
    (
        capacity.EngineOverloaded(),
        503,
        "server_error",
        None,
        None,
        "The engine is currently overloaded, please try again later.",
    ),
]


GOLDEN += [
    (api.RangeNotSatisfiable(10), 416, "invalid_request_error", None, None, "The file has 10 bytes;"),
    (
        capacity.NoPrimary(),
        503,
        "server_error",
        "database_without_primary",
        None,
        "The database takes no writes right now: it has no primary, or this region is cut off from it. Requests "
        "that need no database still work. Please retry your request.",
    ),
    (
        api.WrongRegion(),
        403,
        "invalid_request_error",
        "wrong_region",
        None,
        "This API key is bound to another region. Send the request to the address of that region.",
    ),
    (
        capacity.SignInLimited(300.0),
        429,
        "rate_limit_error",
        None,
        None,
        "Too many sign-ins have failed. Please wait for 5m",
    ),
    (capacity.StoresAway("The database is away."), 503, "server_error", None, None, "The database is away."),
    (
        capacity.InsufficientStorage(),
        507,
        "server_error",
        "insufficient_storage",
        None,
        "There is no room left to store this.",
    ),
]


@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "param", "start"), GOLDEN, ids=lambda value: type(value).__name__
)
def test_wire_body_of_each_error_is_as_recorded(error, status, kind, code, param, start):
    wire = error.to_wire()
    assert error.status == status
    assert list(wire) == ["error"]
    assert set(wire["error"]) == {"message", "type", "param", "code"}
    assert (wire["error"]["type"], wire["error"]["code"], wire["error"]["param"]) == (kind, code, param)
    assert wire["error"]["message"].startswith(start)
    assert str(error) == wire["error"]["message"]


def test_every_class_of_the_tree_has_a_recorded_body():
    recorded = {type(error) for error, *_ in GOLDEN}
    assert every_subclass(ApiError) - recorded == {api.BadRequest}


def test_every_class_stands_in_the_tree_drawn_at_the_top():
    for cls in every_subclass(ApiError):
        line = next(line for line in (api.__doc__ + capacity.__doc__).splitlines() if f" {cls.__name__} " in f"{line} ")
        assert f" {cls.status} " in line


def test_messages_name_no_classes():
    for error, *_ in GOLDEN:
        for cls in every_subclass(ApiError):
            assert cls.__name__ not in error.message or cls is api.Conflict


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (engine_errors.RequestRejected("No.", "tools", "invalid_value"), api.BadRequest, "No."),
        (engine_errors.Overloaded("full", 2.5), capacity.EngineOverloaded, "The engine is currently overloaded"),
        (engine_errors.EngineDied("secret path"), capacity.Unavailable, "The model stopped while"),
        (
            engine_errors.ContextLengthExceeded("input", 10, 11, True),
            api.ContextLengthExceeded,
            "This model's maximum context length is 10 tokens. However, your input resulted in at least 11 tokens",
        ),
        (
            engine_errors.ContextLengthExceeded("prompt", 10, None),
            api.ContextLengthExceeded,
            "This model's maximum context length is 10 tokens. However, your prompt resulted in more tokens",
        ),
        (engine_errors.EngineError("secret path"), ApiError, FIXED),
    ],
)
def test_engine_error_is_translated(error, expected, message):
    translated = translate.translate_engine_error(error)
    assert type(translated) is expected
    assert translated.message.startswith(message)
    assert "secret" not in translated.message


def test_every_kind_of_engine_error_has_a_translation_of_its_own():
    made = {
        engine_errors.RequestRejected: engine_errors.RequestRejected("m"),
        engine_errors.Overloaded: engine_errors.Overloaded("m"),
        engine_errors.EngineDied: engine_errors.EngineDied("m"),
        engine_errors.ContextLengthExceeded: engine_errors.ContextLengthExceeded("messages", 10, 11),
    }
    # Errors that other modules derive are translated as what they are derived from.
    own = {cls for cls in every_subclass(engine_errors.EngineError) if cls.__module__ == engine_errors.__name__}
    for cls in own - {engine_errors.EngineError}:
        assert type(translate.translate_engine_error(made[cls])) is not ApiError


def test_rejected_request_keeps_param_and_code():
    error = translate.translate_engine_error(engine_errors.RequestRejected("No.", "tools", "invalid_value"))
    assert (error.param, error.code) == ("tools", "invalid_value")


def test_overloaded_engine_says_when_to_come_back():
    error = translate.translate_engine_error(engine_errors.Overloaded("full", 2.5))
    assert error.headers == {"retry-after": "3", "retry-after-ms": "2500"}


@pytest.mark.parametrize(
    ("wait_s", "seconds", "milliseconds"), [(6.0, "6", "6000"), (1.146, "2", "1146"), (0.0, "1", "1")]
)
def test_rate_limit_headers_carry_the_true_wait(wait_s, seconds, milliseconds):
    error = capacity.RateLimited(Denied("tokens", 10, 10, 1, wait_s), "org-a")
    assert error.headers == {"retry-after": seconds, "retry-after-ms": milliseconds}


def test_request_that_never_fits_is_not_to_be_retried():
    error = capacity.RateLimited(Denied("tokens", 10, 0, 11, None), "org-a")
    assert error.headers == {"x-should-retry": "false"}


def test_conflict_is_not_to_be_retried():
    assert api.Conflict("no").headers == {"x-should-retry": "false"}


def test_method_not_allowed_lists_methods():
    assert api.MethodNotAllowed("GET", "/x", ("POST", "HEAD")).headers == {"allow": "POST, HEAD"}
    assert api.MethodNotAllowed("GET", "/x").headers == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-1, "0s"),
        (0.0001, "1ms"),
        (0.012, "12ms"),
        (1, "1s"),
        (1.146, "1.146s"),
        (1.5, "1.5s"),
        (59.9999, "1m0s"),
        (360, "6m0s"),
        (3600, "1h0m0s"),
        (3661.25, "1h1m1.25s"),
    ],
)
def test_duration_is_printed_as_go_does(seconds, text):
    assert capacity.render_duration(seconds) == text


@given(st.floats(min_value=0, max_value=1e6))
def test_duration_is_never_shorter_than_the_time(seconds):
    text = capacity.render_duration(seconds)
    scale = {"h": 3600, "m": 60, "s": 1}
    total, number = 0.0, ""
    for char in text.replace("ms", "_"):
        if char == "_":
            total += float(number) / 1000
            number = ""
        elif char in scale:
            total += float(number) * scale[char]
            number = ""
        else:
            number += char
    assert seconds - 1e-5 <= total <= seconds + 0.002


@given(st.text())
def test_shortened_scalar_is_short_and_printable(text):
    shown = api.shorten(text)
    assert len(shown) <= 64
    assert shown.isprintable()


def test_a_model_that_was_meant_is_suggested():
    start = "The model `acme/chta` does not exist or you do not have access to it. "
    assert api.ModelNotFound("acme/chta", "acme/chat").message == f"{start}Did you mean `acme/chat`?"
    assert api.ModelNotFound("acme/chta").message == f"{start}GET /v1/models lists the models of this key."


@pytest.mark.parametrize("error", [api.Unauthenticated(), api.InvalidKey("sk-x"), api.KeyRevoked()])
def test_an_operator_without_a_key_is_shown_how_to_make_one(error):
    assert error.message.endswith(" Operators create one with `manta keys create` or in the console.")


@pytest.mark.parametrize("secret", ["", "sk-1", "' OR 1=1 --", "x" * 15])
def test_short_secret_is_hidden_whole(secret):
    assert ": ***. Ask" in api.InvalidKey(secret).message


def test_masked_secret_shows_its_ends_only():
    assert ": sk-ab***wxyz. Ask" in api.InvalidKey("sk-ab" + "0" * 100 + "wxyz").message
    assert ": ?????***wxyz. Ask" in api.InvalidKey("\x00\n\r\t\x1b" + "0" * 100 + "wxyz").message


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StoreFull("No room."), 507),
        (StoreUnavailable("Away."), 503),
        (OperationalError(None, None, Exception("database or disk is full")), 507),
        (OperationalError(None, None, Exception("could not extend file: No space left on device")), 507),
        (OperationalError(None, None, TimeoutError()), 503),
        (DBAPIError(None, None, Exception("connection was closed in the middle of operation")), 503),
        (ValueError("a bug"), None),
    ],
)
def test_failure_of_a_store_has_a_status_of_its_own(error, status):
    translated = translate_error(error)
    assert (None if translated is None else translated.status) == status
    assert str(error) not in str(translated)


def test_every_engine_error_and_every_refusal_is_translated():
    refusal = api.BadRequest("No.")
    assert translate_error(refusal) is refusal
    assert translate_error(engine_errors.Overloaded("full", 2.5)).status == 503
