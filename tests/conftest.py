"""What every test runs with."""

import logging
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import starts
from tests.needs import pytest_runtest_makereport

if TYPE_CHECKING:
    from tests.side_by_side import GroupScheduling

__all__ = ["pytest_runtest_makereport"]

# No property has to be fast, since the machine may be busy with something else.
settings.register_profile("patient", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("exhaustive", settings.get_profile("patient"), max_examples=600)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exhaustive", action="store_true", help="Run what is marked so too, and properties at length.")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("exhaustive" if config.getoption("exhaustive") else "patient")
    starts.begin()


def pytest_unconfigure() -> None:
    starts.end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"Started so far: {starts.described()}.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests that share a running service last, and leave out the exhaustive ones unless they are asked for."""
    items.sort(key=lambda item: not {"service", "fixed"}.isdisjoint(getattr(item, "fixturenames", ())))
    if config.getoption("exhaustive"):
        return
    left_out = [item for item in items if item.get_closest_marker("exhaustive")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that reads the log if its handler was taken away meanwhile: it would have seen nothing.

    Some libraries replace the root logger's handlers when they are first imported.
    """
    result = yield
    reader = getattr(item, "funcargs", {}).get("caplog")
    if reader is not None and reader.handler not in logging.getLogger().handlers:
        pytest.fail("pytest's log handler was taken away in this test, so what it asserts of the log means nothing")
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> "GroupScheduling":
    from tests.side_by_side import GroupScheduling

    return GroupScheduling(config, log)
