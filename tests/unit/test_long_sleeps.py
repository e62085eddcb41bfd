"""No test waits for a fixed time of over a second: it waits for what happens, or hands a shorter interval in.

Exhaustive tests may. What stands for a peer that never answers, and is ended, awaits `asyncio.Event().wait()` or sleeps
`FOREVER`.
"""

import ast
import operator
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
MAX_S = 1
CLOCKS = ("anyio", "asyncio", "time")
SUMS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
EXHAUSTIVE = "pytest.mark.exhaustive"


def long_sleeps(code: str) -> list[int]:
    """Return the lines that sleep for longer than they may, where the seconds stand in the module itself."""
    module = ast.parse(code)
    if _is_exhaustive(module):
        return []
    assigned = [(node.targets[0], node.value) for node in module.body if isinstance(node, ast.Assign)]
    values = {target.id: value for target, value in assigned if isinstance(target, ast.Name)}
    return [call.lineno for call in _sleeps(module) if call.args and _seconds(call.args[0], values) > MAX_S]


def _is_exhaustive(node: ast.AST) -> bool:
    """Return whether a function is marked so, or a module, or all of its tests."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return any(ast.unparse(mark) == EXHAUSTIVE for mark in node.decorator_list)
    if not isinstance(node, ast.Module):
        return False
    marks = [ast.unparse(one) for one in node.body if isinstance(one, ast.Assign)]
    tests = [one for one in node.body if getattr(one, "name", "").startswith("test_")]
    is_marked = any(mark.startswith("pytestmark = ") and EXHAUSTIVE in mark for mark in marks)
    return is_marked or (bool(tests) and all(map(_is_exhaustive, tests)))


def _sleeps(node: ast.AST) -> Iterator[ast.Call]:
    """Yield every call of a clock's `sleep` outside of what is exhaustive."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=clock), attr="sleep")) if clock in CLOCKS:
            yield node
    for child in ast.iter_child_nodes(node):
        if not _is_exhaustive(child):
            yield from _sleeps(child)


def _seconds(node: ast.expr, values: dict[str, ast.expr]) -> float:
    """Return the number that an expression comes to, the larger of two; 0 where it comes from elsewhere."""
    match node:
        case ast.Constant(value=float() | int() as seconds):
            return seconds
        case ast.Name(id=name) if name in values and name != "FOREVER":
            return _seconds(values[name], values)
        case ast.IfExp():
            return max(_seconds(node.body, values), _seconds(node.orelse, values))
        case ast.BinOp() if type(node.op) in SUMS:
            return float(SUMS[type(node.op)](_seconds(node.left, values), _seconds(node.right, values)))
    return 0


def test_no_test_sleeps_for_more_than_a_second() -> None:
    paths = [path for path in sorted(TESTS.rglob("*.py")) if (TESTS / "tools") not in path.parents]
    codes = {path: code for path in paths if ".sleep(" in (code := path.read_text())}
    assert len(codes) > 30
    found = [f"{path.relative_to(TESTS)}:{line}" for path, code in codes.items() for line in long_sleeps(code)]
    assert not found, "Wait for what happens, or hand the interval in: " + ", ".join(found)


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("await asyncio.sleep(1)", []),
        ("await asyncio.sleep(1.5)", [1]),
        ("time.sleep(60 if is_slow else 0.1)", [1]),
        ("AWAY_S = 0.6\nawait anyio.sleep(2 * AWAY_S)", [2]),
        ("time.sleep(given_s)", []),
        ("def test_x():\n    time.sleep(2)", [2]),
        ("@pytest.mark.exhaustive\ndef test_x():\n    time.sleep(2)\ndef test_y(): pass", []),
        ("@pytest.mark.exhaustive\ndef test_x(): pass\ndef test_y(): wait()\ndef wait(): time.sleep(2)", [4]),
        ("@pytest.mark.exhaustive\ndef test_x(): wait()\ndef wait(): time.sleep(2)", []),
        ("pytestmark = pytest.mark.exhaustive\ndef test_x(): time.sleep(2)", []),
        ("clock.sleep(2)", []),
        ("FOREVER = 3600\ntime.sleep(FOREVER)", []),
    ],
)
def test_sleeps_are_found(code: str, lines: list[int]) -> None:
    assert long_sleeps(code) == lines
