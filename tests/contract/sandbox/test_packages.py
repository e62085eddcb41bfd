"""The packages that the operator lets code import: those that are named and what they need, nothing beside them."""

import pytest

from deployments.tools.sandbox.host import prepare_host
from deployments.tools.sandbox.root import SandboxUnavailable
from tests.contract.sandbox.looking import look


@pytest.fixture
async def chosen(host):
    """A sandbox whose packages are openpyxl, which needs et-xmlfile, and sympy, which needs mpmath."""
    sandbox = await (await prepare_host(host.limits, packages=("openpyxl", "SymPy"))).start()
    yield sandbox
    await sandbox.close()


async def test_a_package_that_is_named_works_with_what_it_needs(chosen):
    code = """
import openpyxl
book = openpyxl.Workbook()
book.active["A1"] = 457
book.save("book.xlsx")
print(openpyxl.load_workbook("book.xlsx").active["A1"].value)
import sympy
print(sympy.factorint(56211))
"""
    assert await look(chosen, code) == "457\n{3: 1, 41: 1, 457: 1}"
    assert await look(chosen, "import et_xmlfile, mpmath; et_xmlfile.__file__, mpmath.__file__") == (
        "('/packages/et_xmlfile/__init__.py', '/packages/mpmath/__init__.py')"
    )


async def test_a_package_that_is_not_named_is_not_there(chosen):
    for name in ("numpy", "pandas", "docx", "ray", "pip", "deployments"):
        assert f"No module named '{name}'" in await look(chosen, f"import {name}")


@pytest.mark.parametrize("name", ["no-such-package", "No_Such.Package"])
async def test_a_package_that_is_not_installed_is_refused_at_the_start(host, name):
    with pytest.raises(SandboxUnavailable) as refused:
        await prepare_host(host.limits, packages=("numpy", name))
    assert str(refused.value) == (
        "the Python package no-such-package is not installed here: install it beside the service, or leave it out of "
        "packages"
    )
