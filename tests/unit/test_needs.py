"""Tests that lack a program are skipped, but in CI what its script installs must be there."""

import pytest

from tests import needs


def test_what_ci_installs_may_be_missing_elsewhere_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "PROGRAMS", None)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="PostgreSQL"):
        needs.postgresql()
    monkeypatch.delenv("CI")
    with pytest.raises(needs.Missing, match="PostgreSQL"):
        needs.postgresql()


def test_what_nobody_installs_may_be_missing_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.delenv("MANTA_SEARXNG_URL", raising=False)
    with pytest.raises(needs.Missing, match="SearXNG"):
        needs.searxng()
