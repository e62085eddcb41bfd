import pickle

import pytest

from deployments.channel.errors import ChannelError, parse_error, render_error
from deployments.models.contract import errors

EVERY_ERROR = [
    errors.EngineError("broken"),
    errors.RequestRejected("no", "messages", "context_length_exceeded"),
    errors.Overloaded("full", 2.5),
    errors.EngineDied("gone"),
    errors.ContextLengthExceeded("messages", 1024, 1025, True),
    errors.ContextLengthExceeded("prompt", 1024, None),
]


def test_every_kind_of_error_is_in_the_list():
    kinds = [errors.EngineError]
    for kind in kinds:
        kinds.extend(one for one in kind.__subclasses__() if one.__module__ == errors.__name__)
    assert {type(error) for error in EVERY_ERROR} == set(kinds)


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_when_it_has_crossed_a_process(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_when_it_has_crossed_the_side_channel(error):
    copy = errors.from_channel(parse_error(render_error(errors.to_channel(error))))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)


def test_an_error_of_a_kind_that_this_version_does_not_know_is_a_failure_without_a_kind():
    error = parse_error(b'["Paused", "The engine is paused.", 3]')
    assert type(error) is ChannelError
    assert error.message == "The engine is paused."
