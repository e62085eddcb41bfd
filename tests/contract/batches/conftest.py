"""The world of the application, for what requests say while a batch's stores are away."""

from tests.contract.http.conftest import world

__all__ = ["world"]
