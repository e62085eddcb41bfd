"""What every test runs with: no property has to be fast, since the machine may be busy with something else."""

from hypothesis import HealthCheck, settings

from tests.needs import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]

settings.register_profile("patient", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
