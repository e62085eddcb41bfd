import pickle

import pytest

from deployments.channel.errors import ChannelError, parse_error, render_error
from deployments.models.contract import errors

EVERY_ERROR = [
    errors.EngineError("broken"),
    errors.RequestRejected("no", "messages", "context_length_exceeded"),
    errors.Overloaded("full", 2.5),
    errors.EngineDied("gone"),
    errors.Cancelled("left"),
]


def test_every_kind_of_error_is_in_the_list():
    kinds = [errors.EngineError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    assert {type(error) for error in EVERY_ERROR} == set(kinds)


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_when_it_has_crossed_a_process(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("error", EVERY_ERROR[:-1], ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_when_it_has_crossed_the_side_channel(error):
    copy = errors.from_channel(parse_error(render_error(errors.to_channel(error))))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)


def test_a_request_that_its_caller_took_back_crosses_as_a_failure_without_a_kind():
    assert type(errors.to_channel(errors.Cancelled("left"))) is ChannelError
