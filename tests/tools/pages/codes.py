"""Every error code that the service can answer, read out of its source by the places where codes stand.

A code is a string literal in one of the forms that `_codes_of` knows. An f-string is only understood where
`EXPANSIONS` lists what it can become; another one fails, so that no code is missed silently.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from serve_app.errors import api, capacity

ROOT = Path(__file__).parents[3]
FOLDERS = ("serve_app", "deployments", "batch")
_CODE = re.compile(r"[a-z]+(_[a-z]+)+")
EXPANSIONS: Mapping[str, tuple[str, ...]] = {
    "f'{kind}_{end}_value'": tuple(
        f"{kind}_{end}_value" for kind in ("integer", "decimal") for end in ("above_max", "below_min")
    ),
    "f'{noun}_above_max_length'": ("string_above_max_length", "array_above_max_length"),
    "f'empty_{noun}'": ("empty_string", "empty_array"),
    "f'upload_{refused.status}'": ("upload_completed", "upload_cancelled", "upload_expired"),
}
ANSWER, RESPONSE, STORE_FILE = "an error answer", "the error of a response", "the error of a file in a vector store"
BATCH, LINE, LOG = "the errors of a batch", "the error of an output line", "the request log only"


class Found(NamedTuple):
    """A code, where callers meet it, and the statuses of the answers that carry it."""

    code: str
    where: str
    statuses: frozenset[int] = frozenset()


@cache
def find_codes() -> tuple[Found, ...]:
    """Return every code with every place where it is met, by name."""
    found: dict[tuple[str, str], frozenset[int]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for each in codes_in(path.read_text(encoding="utf-8"), folder):
                key = (each.code, each.where)
                found[key] = found.get(key, frozenset()) | each.statuses
    return tuple(Found(code, where, statuses) for (code, where), statuses in sorted(found.items()))


def codes_in(source: str, folder: str = "serve_app") -> list[Found]:
    """Return the codes of one module's source."""
    tree = ast.parse(source)
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = [found for node in ast.walk(tree) for found in _codes_of(node, constants, folder)]
    # A class that fixes its code passes it on to the class above it; the status is its own.
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and isinstance(status := _status_of(node.name), int):
            found += [Found(each.code, ANSWER, frozenset({status})) for each in _given_above(node)]
    return found


def _codes_of(node: ast.AST, constants: Mapping[str, ast.expr], folder: str) -> Iterator[Found]:
    match node:
        case ast.Call():
            yield from _in_call(node, constants)
        case ast.AnnAssign(target=ast.Name(id="code"), value=ast.expr() as value):
            yield from _literals(value, constants, ANSWER, 400)
        case ast.Assign(targets=[target]):
            yield from _in_assignment(target, node.value, constants, folder)
        case ast.Dict() if folder == "batch":
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "code" and isinstance(value, ast.Constant):
                    yield from _literals(value, constants, BATCH)
        case ast.FunctionDef(args=arguments):
            names = arguments.args[len(arguments.args) - len(arguments.defaults) :]
            for argument, default in zip(names, arguments.defaults, strict=True):
                if argument.arg == "code":
                    yield from _literals(default, constants, ANSWER)


def _in_call(node: ast.Call, constants: Mapping[str, ast.expr]) -> Iterator[Found]:
    func = node.func
    name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
    for keyword in node.keywords:
        if keyword.arg == "code" and name != "__init__":
            yield from _literals(keyword.value, constants, ANSWER, _status_of(name))
    if name == "refusal" and node.args:
        yield from _literals(node.args[0], constants, ANSWER, 400)
    if name == "RequestRejected" and len(node.args) == 3 and not isinstance(node.args[2], ast.Name):
        yield from _literals(node.args[2], constants, ANSWER, 400)
    if name in ("LineFault", "_invalid") and node.args:
        yield from _literals(node.args[0], constants, BATCH)


def _in_assignment(
    target: ast.expr, value: ast.expr, constants: Mapping[str, ast.expr], folder: str
) -> Iterator[Found]:
    match target, value:
        case ast.Name(id="ErrorCode"), ast.Subscript(slice=ast.Tuple(elts=elements)):
            where = RESPONSE if folder == "serve_app" else STORE_FILE
            for element in elements:
                yield from _literals(element, constants, where)
        case ast.Name(), ast.Tuple(elts=[ast.Constant(value=str(code)), ast.Constant(value=str())]):
            if folder == "batch" and _CODE.fullmatch(code):
                yield Found(code, LINE)
        case ast.Tuple(elts=targets), ast.Tuple(elts=values):
            for each, given in zip(targets, values, strict=False):
                is_code = isinstance(each, ast.Attribute) and each.attr == "code"
                if is_code and isinstance(given, ast.Constant) and isinstance(given.value, str):
                    yield Found(given.value, LOG)


def _literals(
    value: ast.expr, constants: Mapping[str, ast.expr], where: str, status: int | None = None
) -> Iterator[Found]:
    match value:
        case ast.Constant(value=str(code)) if _CODE.fullmatch(code):
            yield Found(code, where, frozenset() if status is None else frozenset({status}))
        case ast.IfExp(body=body, orelse=orelse):
            yield from _literals(body, constants, where, status)
            yield from _literals(orelse, constants, where, status)
        case ast.JoinedStr():
            for code in EXPANSIONS[ast.unparse(value)]:
                yield Found(code, where, frozenset() if status is None else frozenset({status}))
        case ast.Name(id=name) if name in constants:
            yield from _literals(constants[name], {}, where, status)


def _status_of(name: str) -> int | None:
    kind = getattr(api, name, None) or getattr(capacity, name, None)
    is_error = isinstance(kind, type) and issubclass(kind, api.ApiError)
    return kind.status if is_error and isinstance(kind, type) else None  # type: ignore[attr-defined]


def _given_above(node: ast.ClassDef) -> Iterator[Found]:
    """Yield the codes that a class of `serve_app.errors` hands to `super().__init__`, or has as a default."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "__init__":
            for keyword in inner.keywords:
                if keyword.arg == "code":
                    yield from _literals(keyword.value, {}, ANSWER)
        elif isinstance(inner, ast.FunctionDef):
            yield from _codes_of(inner, {}, "serve_app")
