"""The rewritten schema as a graph of nodes: which nodes have values, and how they are written."""

from collections import Counter
from dataclasses import dataclass
from typing import Any


@dataclass
class Leaf:
    """A schema without subschemas."""

    schema: dict[str, Any]


@dataclass
class AnyOf:
    """Any one of several nodes."""

    options: list[int]


@dataclass
class Array:
    """The first items by position, and the node of the rest, if more may follow."""

    first: list[int]
    rest: int | None
    least: int
    most: int | None


@dataclass
class Object:
    """Properties by name, and by an expression for the names of others; None matches any name."""

    properties: dict[str, int]
    required: set[str]
    free: list[tuple[str | None, int]]
    least: int
    most: int | None


Node = Leaf | AnyOf | Array | Object


def has_values(node: Node, full: set[int]) -> bool:
    """Return whether a node has values, given the nodes in `full` that have some."""
    match node:
        case Leaf():
            return True
        case AnyOf(options):
            return any(option in full for option in options)
        case Array():
            return _num_possible(node, full) >= node.least
        case Object():
            there = [name for name, node_id in node.properties.items() if node_id in full]
            is_open = any(node_id in full for _, node_id in node.free)
            fewest = max(node.least, len(node.required))
            is_enough = is_open or len(there) >= node.least
            return is_enough and node.required <= set(there) and (node.most is None or fewest <= node.most)


def _num_possible(node: Array, full: set[int]) -> float:
    most = float("inf") if node.most is None else node.most
    for index, node_id in enumerate(node.first):
        if node_id not in full:
            return min(most, index)
    return most if node.rest in full else min(most, len(node.first))


class Graph:
    """Nodes by number, with a root."""

    def __init__(self, nodes: list[Node], root: int, prefix: str) -> None:
        self._nodes = nodes
        self._root = root
        self._prefix = prefix
        self._full: set[int] = set()
        self._settle()
        self._root = self._actual(root)

    @property
    def has_values(self) -> bool:
        """Whether any finite value fits."""
        return self._root in self._full

    def _settle(self) -> None:
        users: dict[int, list[int]] = {}
        for number, node in enumerate(self._nodes):
            for child in _children(node):
                users.setdefault(child, []).append(number)
        pending = list(range(len(self._nodes)))
        while pending:
            number = pending.pop()
            if number not in self._full and has_values(self._nodes[number], self._full):
                self._full.add(number)
                pending.extend(users.get(number, ()))

    def _actual(self, number: int) -> int:
        """Return the only option of a node, else the node itself."""
        node = self._nodes[number]
        options = [option for option in node.options if option in self._full] if isinstance(node, AnyOf) else []
        return self._actual(options[0]) if len(options) == 1 else number

    def schema(self) -> dict[str, Any]:
        """Return the schema of the root; nodes that are used more than once are under `$defs`."""
        uses: Counter[int] = Counter([self._root])
        pending, seen = [self._root], {self._root}
        while pending:
            for child in _children(self._nodes[pending.pop()]):
                if child in self._full:
                    child = self._actual(child)
                    uses[child] += 1
                    if child not in seen:
                        seen.add(child)
                        pending.append(child)
        shared = {number for number in seen if uses[number] > 1 and not isinstance(self._nodes[number], Leaf)}
        definitions = {f"{self._prefix}{number}": self._written(number, shared) for number in sorted(shared)}
        root = self._written(self._root, shared)
        return {**root, "$defs": definitions} if definitions else root

    def _written(self, number: int, shared: set[int]) -> dict[str, Any]:
        """Return the schema of one node, with references to shared nodes."""

        def use(child: int) -> dict[str, Any]:
            child = self._actual(child)
            return {"$ref": f"#/$defs/{self._prefix}{child}"} if child in shared else self._written(child, shared)

        node = self._nodes[number]
        match node:
            case Leaf(schema):
                return dict(schema)
            case AnyOf(options):
                return {"anyOf": [use(option) for option in options if option in self._full]}
            case Array():
                return self._array(node, use)
            case Object():
                return self._object(number, node, use)

    def _array(self, node: Array, use: Any) -> dict[str, Any]:
        possible = _num_possible(node, self._full)
        first = [use(child) for child in node.first[: int(min(possible, len(node.first)))]]
        has_rest = possible > len(node.first)
        written: dict[str, Any] = {"type": "array", **({"prefixItems": first} if first else {})}
        written["items"] = use(node.rest) if has_rest else False
        if node.least:
            written["minItems"] = node.least
        if has_rest and node.most is not None:
            written["maxItems"] = node.most
        return written

    def _object(self, number: int, node: Object, use: Any) -> dict[str, Any]:
        there = {name: use(child) for name, child in node.properties.items() if child in self._full}
        free = [(expression, use(child)) for expression, child in node.free if child in self._full]
        # xgrammar merges parts that differ only in a property named like an annotation, such as "title".
        written: dict[str, Any] = {"type": "object", "x-number": f"{self._prefix}{number}", "properties": there}
        named = {expression: child for expression, child in free if expression is not None}
        anything = [child for expression, child in free if expression is None]
        if not there:
            del written["properties"]
        if named:
            # vLLM refuses the keyword beside a type.
            del written["type"]
            written["patternProperties"] = named
        if node.required:
            written["required"] = [name for name in there if name in node.required]
        written["additionalProperties"] = anything[0] if anything else False
        if node.least > len(node.required):
            written["minProperties"] = node.least
        if node.most is not None and (free or len(there) > node.most):
            written["maxProperties"] = node.most
        return written


def _children(node: Node) -> list[int]:
    match node:
        case Leaf():
            return []
        case AnyOf(options):
            return options
        case Array(first, rest):
            return [*first, *([] if rest is None else [rest])]
        case Object(properties, _, free):
            return [*properties.values(), *(child for _, child in free)]
