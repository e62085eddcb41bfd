"""Plain sentences for the errors with which pydantic refuses a setting."""

import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from serve_app.checks.document import Place
from serve_app.errors.nearest import closest_to
from serve_app.validation.fields import models_in

FORMS: Mapping[str, str] = {
    r"^[a-z]{3}$": "three small letters, such as usd",
    r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$": (
        "letters, digits, dots, hyphens and underscores, with at most one slash, such as qwen/qwen3-8b"
    ),
    r"^(vllm|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)$": "vllm, or a function, such as package.module:function",
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "letters, digits, dots, hyphens and underscores",
    r"^https?://[^\s/?#@]+(/[^\s?#]*)?$": "an address, such as https://example.com/path, without a user or a query",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "the name of an environment variable, such as MANTA_PEPPER",
    r"^(\[\]|[A-Za-z0-9_-]+(\[\])*)(\.(\[\]|[A-Za-z0-9_-]+(\[\])*))*$": "the way to a field, such as input[].note",
    r"^(\*|https?://[^/\s]+)$": "an origin without a path, such as https://example.com, or *",
    r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$": "a DNS name, such as manta.internal",
    r"^[a-z][a-z0-9-]{0,15}$": "at most 16 small letters, digits and hyphens, with a letter first, such as eu-west",
    r"^[a-z0-9][a-z0-9_-]*$": "small letters, digits, hyphens and underscores, such as premium",
    r"^[\x21-\x7e]+$": "text of ASCII without blanks, such as qwen/*",
    r"^[A-Za-z0-9][A-Za-z0-9 ._@-]*$": "letters, digits, blanks and . _ @ -, with a letter or digit first",
    r"^[a-z0-9-]{1,16}$": "at most 16 small letters, digits and hyphens",
}
"""By the pattern of the setting, or of a key's field."""
_MAX_SHOWN = 40
_LIST = "should be a list, such as [a, b]"
_SECTION = "should be a section with names and values"
_TEXT = "should be text"
_WHOLE = "should be a whole number"
_NUMBER = "should be a number"
_SWITCH = "should be true or false"
_NETWORK = "should be an address or a network, such as 10.0.0.0/24"
_REFERENCES = {"EnvReference": "should be {env: NAME}", "FileReference": "should be {file: PATH}"}
_RETIRED = re.compile(r"the setting (\w+) is gone: ")
_NAMED = re.compile(r"([a-z_]+(?:\.\w+)*): (.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a section or a setting.

    `name` is an unknown name in it, `meant` the one that it probably stands for. Without `is_certain`, the service may
    start all the same.
    """

    place: Place
    message: str
    name: str | None = None
    is_certain: bool = True
    meant: str | None = None


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return a sentence with the closest known name, with a space before it; empty if none is close."""
    closest = closest_to(name, known)
    return "" if closest is None else f'. Did you mean "{closest}"?'


SENTENCES: Mapping[str, Callable[[Mapping[str, Any], Any], str]] = {
    "string_type": lambda about, given: _TEXT + _in_quotes(given),
    "string_too_short": lambda about, given: (
        "may not be empty" if about["min_length"] == 1 else f"should have at least {about['min_length']} characters"
    ),
    "string_too_long": lambda about, given: f"should have at most {about['max_length']} characters",
    "string_pattern_mismatch": lambda about, given: f"should be {_form(about['pattern'])}{_not(given)}",
    "int_type": lambda about, given: f"{_WHOLE}{_not(given)}",
    "int_parsing": lambda about, given: f"{_WHOLE}{_not(given)}",
    "int_from_float": lambda about, given: f"{_WHOLE}{_not(given)}",
    "int_parsing_size": lambda about, given: "is too large a number",
    "float_type": lambda about, given: f"{_NUMBER}{_not(given)}",
    "float_parsing": lambda about, given: f"{_NUMBER}{_not(given)}",
    "finite_number": lambda about, given: "should be a finite number",
    "bool_type": lambda about, given: f"{_SWITCH}{_not(given)}",
    "bool_parsing": lambda about, given: f"{_SWITCH}{_not(given)}",
    "literal_error": lambda about, given: _one_of(about["expected"], given),
    "enum": lambda about, given: _one_of(about["expected"], given),
    "greater_than": lambda about, given: f"should be more than {_number(about['gt'])}{_not(given)}",
    "greater_than_equal": lambda about, given: f"should be at least {_number(about['ge'])}{_not(given)}",
    "less_than": lambda about, given: f"should be less than {_number(about['lt'])}{_not(given)}",
    "less_than_equal": lambda about, given: f"should be at most {_number(about['le'])}{_not(given)}",
    "tuple_type": lambda about, given: _LIST,
    "list_type": lambda about, given: _LIST,
    "set_type": lambda about, given: _LIST,
    "frozen_set_type": lambda about, given: _LIST,
    "dict_type": lambda about, given: _section(about, given),
    "mapping_type": lambda about, given: _section(about, given),
    "model_type": lambda about, given: _section(about, given),
    "model_attributes_type": lambda about, given: _section(about, given),
    "too_short": lambda about, given: f"needs at least {_entries(about['min_length'])}",
    "too_long": lambda about, given: f"has more than {_entries(about['max_length'])}",
    "path_type": lambda about, given: "should be the path of a file or a folder",
    "ip_v4_network": lambda about, given: _NETWORK,
    "ip_v6_network": lambda about, given: _NETWORK,
    "url_type": lambda about, given: "should be an address, such as https://example.com",
    "url_parsing": lambda about, given: "is not a valid address, such as https://example.com",
    "url_scheme": lambda about, given: f"should be an address that begins with {_quoted(about['expected_schemes'])}",
    "url_too_long": lambda about, given: f"should have at most {about['max_length']} characters",
    "union_tag_not_found": lambda about, given: f"needs the setting {_quoted(about['discriminator'])}",
    "union_tag_invalid": lambda about, given: _one_of(about["expected_tags"], about["tag"]),
    "callable_type": lambda about, given: "should name a function, as package.module:function",
    "is_type": lambda about, given: "should be a class",
    "is_instance_of": lambda about, given: f"should be a {about['class']}",
    "none_required": lambda about, given: "should be left out",
    "value_error": lambda about, given: str(about["error"]).removesuffix(".").removesuffix("!"),
}
"""The sentence of each of pydantic's error types that a setting can have, from its context and the value."""


def faults_in(given: Any, kind: type[BaseModel], at: Place = ()) -> list[Fault]:
    """Return what is wrong with the section `given`, of the kind `kind`, which stands at the place `at`.

    Names that the kind does not have are faults, also where it would ignore them itself. Where a setting may have one
    of several forms, the faults are those of the form that was probably meant. A fault that only follows from another
    one is left out.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            kind.model_validate(given, extra="forbid")
    except ValidationError as error:
        found = [_Located.of(details, given, kind) for details in error.errors(include_url=False)]
    except Exception as error:  # Ray imports what some settings name, and trusts the types of others.
        return [Fault(at, f"cannot be used: {error}")]
    else:
        return []
    chosen: list[_Located] = []
    for choice in dict.fromkeys(one.choice for one in found):
        together = [one for one in found if one.choice == choice]
        chosen += together if choice is None else _of_one_form(together, _value_at(given, choice))
    return [replace(one.fault, place=(*at, *one.fault.place)) for one in _without_consequences(chosen)]


@dataclass(frozen=True, slots=True)
class _Located:
    """A fault, and what is known of its cause.

    `choice` is the place where one of several forms is possible, None without one; `form` is the form that was tried.
    `missing` is the setting that is missing.
    """

    fault: Fault
    choice: Place | None = None
    form: str | int = ""
    missing: str | None = None

    @classmethod
    def of(cls, details: ErrorDetails, given: Any, kind: type[BaseModel]) -> "_Located":
        """Return one of pydantic's errors."""
        is_missing = details["type"] == "missing"
        way = details["loc"][:-1] if is_missing or details["type"] == "extra_forbidden" else details["loc"]
        place, forms, kinds = _follow(way, given, kind)
        choice, form = forms[0] if forms else (None, "")
        known = [name for one in kinds for name in one.model_fields]
        name = str(details["loc"][-1]) if details["loc"] else ""
        if is_missing:
            return cls(Fault(place, f'the setting "{name}" is missing'), choice, form, missing=name)
        if details["type"] == "extra_forbidden":
            meant = closest_to(name, known)
            fault = Fault(place, f'unknown setting "{name}"{did_you_mean(name, known)}', name=name, meant=meant)
            return cls(fault, choice, form)
        sentence = SENTENCES.get(details["type"])
        about, value = details.get("ctx", {}), details["input"]
        message = details["msg"] if sentence is None else sentence(about, value)
        if (retired := _RETIRED.match(message)) is not None:
            return cls(Fault(place, message, name=retired[1]), choice, form)
        named = _NAMED.match(message)  # Our own errors of a whole section name the setting first.
        if named is not None and named[1].split(".")[0] in known:
            place, message = (*place, *named[1].split(".")), named[2]
        return cls(Fault(place, message), choice, form)


def _follow(
    way: Sequence[str | int], given: Any, kind: type[BaseModel]
) -> tuple[Place, list[tuple[Place, str | int]], list[type[BaseModel]]]:
    """Return the place of an error, the forms that were tried on the way with their places, and the sections there.

    The names in an error's location that are not in the file are pydantic's own: of a form, or of a tag.
    """
    place: Place = ()
    forms: list[tuple[Place, str | int]] = []
    kinds = [kind]
    for part in way:
        value = _value_at(given, place)
        if (isinstance(value, dict) and part in value) or (isinstance(value, list) and isinstance(part, int)):
            inside = [one.model_fields[str(part)].annotation for one in kinds if str(part) in one.model_fields]
            kinds = [model for annotation in inside for model in models_in(annotation)] or kinds
            place = (*place, part)
        elif part != "[key]":
            forms.append((place, part))
            kinds = [one for one in kinds if one.__name__ == part] or kinds
    return place, forms, kinds


def _value_at(given: Any, place: Place) -> Any:
    for part in place:
        given = given[part]
    return given


def _of_one_form(found: list[_Located], value: Any) -> list[_Located]:
    """Return the faults of the form that was probably meant; if none was, one fault that lists the forms."""
    assert found[0].choice is not None
    by_form = {form: [one for one in found if one.form == form] for form in dict.fromkeys(one.form for one in found)}
    if len(by_form) == 1:
        return found
    fitting = [
        faults
        for faults in by_form.values()
        if not any(one.fault.message.startswith("should be") and one.fault.place == one.choice for one in faults)
    ]
    if fitting:
        return min(fitting, key=lambda faults: sum(one.fault.meant is None for one in faults))
    forms = dict.fromkeys(
        one.fault.message.removeprefix("should be ").partition(" (")[0]
        for one in found
        if one.fault.place == one.choice
    )
    return [_Located(Fault(found[0].choice, f"should be {', or '.join(forms)}"))]


def _without_consequences(found: list[_Located]) -> list[_Located]:
    """Leave out that a setting is missing whose name is misspelt, and that a list is short whose entries are wrong."""
    misspelt = {(*one.fault.place, one.fault.meant) for one in found if one.fault.meant is not None}
    kept = []
    for one in found:
        place = one.fault.place
        is_above = any(
            len(other.fault.place) > len(place) and other.fault.place[: len(place)] == place for other in found
        )
        is_count = one.fault.message.startswith(("needs at least", "has more than"))
        if (*place, one.missing) not in misspelt and not (is_above and is_count):
            kept.append(one)
    return kept


def _section(about: Mapping[str, Any], given: Any) -> str:
    return _REFERENCES.get(about.get("class_name", ""), _SECTION)


def _one_of(expected: str, given: Any) -> str:
    known = re.findall(r"'([^']*)'", expected)
    choices = expected.replace("'", '"')
    return f"should be {choices}{_not(given)}{did_you_mean(given, known) if isinstance(given, str) else ''}"


def _form(pattern: str) -> str:
    return FORMS.get(pattern, f"text of the form {pattern}")


def _number(limit: float) -> str:
    return f"{int(limit):,}" if limit == int(limit) else f"{limit:g}"


def _entries(count: int) -> str:
    return "one entry" if count == 1 else f"{count} entries"


def _not(given: Any) -> str:
    """Return ", not " and the value, where it is short; nothing for a section or a list."""
    if isinstance(given, dict | list | tuple) or len(shown := json.dumps(given, default=str)) > _MAX_SHOWN:
        return ""
    return ", not empty" if given is None else f", not {shown}"


def _in_quotes(given: Any) -> str:
    is_scalar = isinstance(given, bool | int | float)
    return f" (in quotes: {json.dumps(json.dumps(given))})" if is_scalar else ""


def _quoted(names: str) -> str:
    return names.replace("'", '"')
