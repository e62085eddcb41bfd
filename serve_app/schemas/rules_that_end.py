"""Finds rules of a grammar that no text ends: each of their alternatives needs such a rule again.

A model that follows one could only stop at its max tokens, with a text that is not of the grammar.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_RULE = "rule_"
_OPTIONAL = ("*", "?", ")?", "{0,")


@dataclass(slots=True, eq=False)
class _Choice:
    """A rule or a group, which ends if one of its alternatives does; `within` are the alternatives that need it."""

    ends: bool = False
    within: list["_Alternative"] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Alternative:
    """Parts one after the other; `num_open` of them are not known to end."""

    choice: _Choice
    num_open: int = 0


def endless(rules: Mapping[str, Sequence[str]]) -> str | None:
    """Return a rule that no text ends, None if there is none. Rules are in EBNF, in parts; takes linear time."""
    choices: defaultdict[str, _Choice] = defaultdict(_Choice)
    alternatives = [one for name, parts in rules.items() for one in _alternatives(choices, name, parts)]
    ended = [one.choice for one in alternatives if not one.num_open]
    while ended:
        choice = ended.pop()
        if choice.ends:
            continue
        choice.ends = True
        for alternative in choice.within:
            alternative.num_open -= 1
            if not alternative.num_open:
                ended.append(alternative.choice)
    return next((name for name in rules if not choices[name].ends), None)


def _alternatives(choices: defaultdict[str, _Choice], name: str, parts: Sequence[str]) -> list[_Alternative]:
    current = _Alternative(choices[name])
    outer: list[_Alternative] = []
    found = [current]
    for index, part in enumerate(parts):
        needed: _Choice | None = None
        match part.removesuffix(' ""'):
            case "|":
                current = _Alternative(current.choice)
                found.append(current)
            case "(":
                outer.append(current)
                current = _Alternative(_Choice())
                found.append(current)
            case ")" | ")?" if outer:
                needed, current = current.choice, outer.pop()
            case rule if rule.startswith(_RULE):
                needed = choices[rule.removeprefix(_RULE)]
        following = parts[index + 1] if index + 1 < len(parts) else ""
        if needed is not None and part != ")?" and not following.startswith(_OPTIONAL):
            needed.within.append(current)
            current.num_open += 1
    return found
