"""The parameter at fault in the request log has names of the service, never those that a client made up."""

import pytest

from serve_app.schemas.chat import ChatRequest
from serve_app.telemetry.trace import known_part


@pytest.mark.parametrize(
    ("param", "kept"),
    [
        ("temperature", "temperature"),
        ("messages[0].content[1].text", "messages[0].content[1].text"),
        ("my secret", None),
        ("temperature.my secret", "temperature"),
        ("metadata.my-secret", "metadata"),
        ("messages[0].my_secret.content", "messages[0]"),
        ("", None),
        (None, None),
    ],
)
def test_a_path_ends_before_the_first_name_that_the_service_does_not_know(param, kept):
    assert "temperature" in ChatRequest.model_fields
    assert known_part(param) == kept
