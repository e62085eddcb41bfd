import logging
import logging.config
from collections.abc import Iterator
from logging.handlers import MemoryHandler
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from deployments.replica_process import AdditiveConfigurator, keep_handlers_open
from deployments.tools.code_interpreter import replica as code_interpreter
from serve_app import ingress

SERVE, LIBRARY = "test_log_handlers.serve", "test_log_handlers.library"


class Sink(logging.Handler):
    """Keeps what it gets, and whether it was closed; its constructor takes what `dictConfig` may hand it."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.is_closed = False

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def close(self) -> None:
        self.is_closed = True
        super().close()


@pytest.fixture(autouse=True)
def _own_handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the configurators see and close only what a test makes."""
    monkeypatch.setattr(logging, "_handlerList", [])
    monkeypatch.setattr(logging.config, "dictConfigClass", logging.config.dictConfigClass)
    yield
    end_process()
    for name in (SERVE, LIBRARY):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.disabled = False


def end_process() -> None:
    """Flush and close what is registered, as Python does at exit."""
    handlers = [reference() for reference in logging._handlerList]  # A file that only its buffer knows is closed too.
    logging.shutdown(logging._handlerList)
    del handlers


def attach(name: str) -> Sink:
    sink = Sink()
    logging.getLogger(name).addHandler(sink)
    return sink


def attach_buffered(name: str, path: Path) -> MemoryHandler:
    """Log to a file through a buffer, as Serve does."""
    buffer = MemoryHandler(1000, target=logging.FileHandler(path))
    logging.getLogger(name).addHandler(buffer)
    return buffer


def config_of(*loggers: str, **fields: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "handlers": {"sink": {"class": "logging.NullHandler"}},
        "loggers": {name: {"handlers": ["sink"], "level": "INFO"} for name in loggers},
        **fields,
    }


def test_buffered_file_handler_of_another_logger_goes_on(tmp_path: Path) -> None:
    buffer = attach_buffered(SERVE, tmp_path / "serve.log")
    target = buffer.target
    keep_handlers_open()
    logging.config.dictConfig(config_of(LIBRARY))
    assert buffer.target is target
    logging.getLogger(SERVE).error("after")
    assert (tmp_path / "serve.log").read_text() == "after\n"
    assert [type(handler) for handler in logging.getLogger(LIBRARY).handlers] == [logging.NullHandler]


def test_buffered_file_handler_is_closed_by_pythons_own_configurator(tmp_path: Path) -> None:
    buffer = attach_buffered(SERVE, tmp_path / "serve.log")
    target = buffer.target
    logging.config.dictConfig(config_of(LIBRARY, disable_existing_loggers=False))
    assert buffer.target is not target
    logging.getLogger(SERVE).error("after")
    assert (tmp_path / "serve.log").read_text() == ""


def test_buffer_is_written_when_the_process_ends(tmp_path: Path) -> None:
    attach_buffered(SERVE, tmp_path / "serve.log")
    AdditiveConfigurator(config_of(LIBRARY)).configure()
    logging.getLogger(SERVE).warning("after")
    end_process()
    assert (tmp_path / "serve.log").read_text() == "after\n"


def test_handlers_of_the_loggers_that_are_named_are_replaced() -> None:
    old, beside = attach(LIBRARY), attach(SERVE)
    AdditiveConfigurator(config_of(LIBRARY)).configure()
    assert old.is_closed
    assert not beside.is_closed
    assert old not in logging.getLogger(LIBRARY).handlers


def test_handler_that_another_logger_uses_too_stays_open() -> None:
    shared = attach(LIBRARY)
    logging.getLogger(SERVE).addHandler(shared)
    AdditiveConfigurator(config_of(LIBRARY)).configure()
    assert not shared.is_closed


@pytest.mark.parametrize("is_named", [True, False])
def test_handlers_of_the_root_logger_are_replaced_only_when_it_is_named(
    monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    sink = Sink()
    monkeypatch.setattr(logging.root, "handlers", [sink])
    level = logging.root.level
    root = {"root": {"handlers": ["sink"], "level": level}} if is_named else {}
    AdditiveConfigurator(config_of(LIBRARY, **root)).configure()
    assert sink.is_closed is is_named


@pytest.mark.parametrize(("fields", "is_disabled"), [({}, False), ({"disable_existing_loggers": True}, True)])
def test_other_loggers_are_disabled_only_when_the_configuration_says_so(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, bool], is_disabled: bool
) -> None:
    serve = logging.getLogger(SERVE)
    monkeypatch.setattr(logging.root.manager, "loggerDict", {SERVE: serve})
    AdditiveConfigurator(config_of(LIBRARY, **fields)).configure()
    assert serve.disabled is is_disabled


def test_handlers_stay_registered_when_the_configuration_is_wrong() -> None:
    sink = attach(SERVE)
    with pytest.raises(ValueError, match="Unable to configure handler 'sink'"):
        AdditiveConfigurator(config_of(LIBRARY, handlers={"sink": {"class": "no.such.Handler"}})).configure()
    end_process()
    assert sink.is_closed


class Stopped(Exception):
    """A replica's constructor has come this far."""


@pytest.mark.parametrize(
    ("module", "first_step", "replica", "arguments"),
    [
        (ingress, "start_gatekeeper", ingress.Ingress, [None, None, {}, {}, {}, None]),
        (code_interpreter, "_find_host", code_interpreter.CodeInterpreterReplica, [None]),
    ],
)
async def test_replica_without_vllm_keeps_handlers_open_before_anything_else(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, first_step: str, replica: type[Any], arguments: list[Any]
) -> None:
    def stop(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr(module, first_step, stop)
    with pytest.raises(Stopped):
        await replica.__init__(SimpleNamespace(), *arguments)
    assert logging.config.dictConfigClass is AdditiveConfigurator
