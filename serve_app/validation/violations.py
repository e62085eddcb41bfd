"""Translates pydantic's findings about a body into one error for the client.

The first finding counts. Its path is the one in the body ("messages[0].content[1].text"), without the names of union
branches that pydantic adds.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from serve_app.errors.api import BadRequest, invalid_value, shorten
from serve_app.errors.nearest import misspelt
from serve_app.validation.fields import Location, is_tag, meant_by

_MAX_FINDINGS = 256
_QUOTED = re.compile(r"'([^']*)'")
_JSON_TYPES: Mapping[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}
_EXPECTED_TYPES = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a decimal",
    "bool_type": "a boolean",
    "bool_parsing": "a boolean",
    "finite_number": "a decimal",
    "float_parsing": "a decimal",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "list_type": "an array",
    "tuple_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}

_BOUNDS = {
    "greater_than": ("gt", ">"),
    "greater_than_equal": ("ge", ">="),
    "less_than": ("lt", "<"),
    "less_than_equal": ("le", "<="),
}


def has_too_many_findings(error: ValidationError) -> bool:
    """Return whether there are too many findings to list; see `trim`."""
    return error.error_count() > _MAX_FINDINGS


def trim(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body with only the first keys of each object: it may have thousands of unknown ones."""
    trimmed: dict[str, Any] = {}
    pending: list[tuple[Any, Any]] = [(body, trimmed)]
    while pending:
        source, target = pending.pop()
        entries = list(source.items())[:_MAX_FINDINGS] if isinstance(source, dict) else enumerate(source)
        for key, value in entries:
            child: Any = {} if isinstance(value, dict) else [] if isinstance(value, list) else value
            if isinstance(target, dict):
                target[key] = child
            else:
                target.append(child)
            if isinstance(value, dict | list):
                pending.append((value, child))
    return trimmed


def translate_violation(
    error: ValidationError, body: dict[str, Any], schema: type[BaseModel] | None = None
) -> BadRequest:
    """Return the error for a body that does not match its schema, which suggests a field for an unknown one."""
    findings = error.errors(include_url=False)
    finding = findings[0]
    if has_too_many_findings(error):
        finding = next((other for other in findings if other["type"] == "extra_forbidden"), finding)
    branch = _branch_of(finding["loc"], body)
    while branch is not None:  # Unions may be nested.
        union = finding["loc"][:branch]
        path, value = _walk(body, union)
        siblings = [other for other in findings if other["loc"][:branch] == union and len(other["loc"]) > branch]
        fitting = [other for other in siblings if _fits(str(other["loc"][branch]), value)]
        if not fitting:
            labels = dict.fromkeys(str(other["loc"][branch])[1:] for other in siblings)
            return _wrong_type(path, _listed(" or ".join(labels)), value)
        finding = fitting[0]
        branch = _branch_of(finding["loc"], body, branch + 1)
    finding = _misspelt_instead(finding, findings)
    if schema is not None and finding["type"] == "extra_forbidden":
        return _unknown(locate(body, finding)[0], meant_by(finding["loc"], body, schema))
    return _TRANSLATORS.get(finding["type"], _translate_other)(finding, body)


def missing_parameter(path: str, beside: Iterable[str] = ()) -> BadRequest:
    """Return the error of a missing field; if one of the names `beside` it was meant for it, the error of that one."""
    parent, dot, name = path.rpartition(".")
    instead = misspelt(name, beside)
    if instead is not None:
        return _unknown(f"{parent}{dot}{shorten(instead)}", name)
    return BadRequest(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")


def _misspelt_instead(finding: ErrorDetails, findings: Sequence[ErrorDetails]) -> ErrorDetails:
    """Return the finding of the unknown field that was meant for a missing one, or the finding itself."""
    if finding["type"] != "missing":
        return finding
    *parent, name = finding["loc"]
    unknown = {
        str(other["loc"][-1]): other
        for other in findings
        if other["type"] == "extra_forbidden" and [*other["loc"][:-1]] == parent
    }
    instead = misspelt(str(name), unknown)
    return finding if instead is None else unknown[instead]


def locate(body: Any, finding: ErrorDetails) -> tuple[str, Any]:
    """Return the path of a finding in the body, and the value there; for a missing field, the object that lacks it."""
    path, current = _walk(body, finding["loc"], finding["input"])
    return (_join(path, str(finding["loc"][-1])), current) if finding["type"] == "missing" else (path, current)


def _walk(body: Any, location: Location, found: Any = None, end: int | None = None) -> tuple[str, Any]:
    path = ""
    current = body
    for part, following in islice(zip_longest(location, location[1:]), end):
        # The finding's own object or array ends the walk: only names of union branches can follow.
        if current is found and isinstance(current, dict | list):
            break
        if isinstance(part, int):
            if isinstance(current, list) and part < len(current):
                path, current = f"{path}[{part}]", current[part]
        elif (
            isinstance(current, dict)
            and part in current
            and (current[part] is found or not is_tag(current, part, following))
        ):
            path, current = _join(path, part), current[part]
    return path, current


def _join(path: str, name: str) -> str:
    name = shorten(name)
    return f"{path}.{name}" if path else name


def _branch_of(location: Location, body: Any, start: int = 0) -> int | None:
    """Return the index of the first union label from `start` on; a client's field may look like one."""
    for index, part in enumerate(location):
        if index >= start and isinstance(part, str) and part[:1] == "?":
            _, value = _walk(body, location, end=index)
            if not (isinstance(value, dict) and part in value):
                return index
    return None


def _fits(label: str, value: Any) -> bool:
    kind = label[1:].partition(" ")[0]
    return isinstance(value, {"string": str, "array": list, "object": dict}[kind])


def _listed(nouns: str) -> str:
    with_article = f"{'an' if nouns[0] in 'aio' else 'a'} {nouns}"
    return f"one of {with_article}" if " or " in nouns else with_article


def _wrong_type(path: str, expected: str, value: Any) -> BadRequest:
    return BadRequest(
        f"Invalid type for '{path}': expected {expected}, but got {_JSON_TYPES[type(value)]} instead.",
        param=path,
        code="invalid_type",
    )


def _translate_type(finding: ErrorDetails, body: Any) -> BadRequest:
    path, value = locate(body, finding)
    if finding["type"] == "int_type" and isinstance(value, float) and abs(value) >= 2**63:
        side, bound = ("above maximum", f"<= {2**63 - 1}") if value > 0 else ("below minimum", f">= {-(2**63)}")
        return _out_of_range(path, "integer", side, bound, value)
    return _wrong_type(path, _EXPECTED_TYPES[finding["type"]], value)


def _translate_range(finding: ErrorDetails, body: Any) -> BadRequest:
    path, value = locate(body, finding)
    name, sign = _BOUNDS[finding["type"]]
    is_above = sign[0] == "<"
    limit = finding["ctx"][name]
    kind = "decimal" if isinstance(limit, float) else "integer"
    side = "above maximum" if is_above else "below minimum"
    shown = f"{limit:g}" if isinstance(limit, float) else str(limit)
    return _out_of_range(path, kind, side, f"{sign} {shown}", value)


def _out_of_range(path: str, kind: str, side: str, bound: str, value: float) -> BadRequest:
    # The parser returns integers beyond 64 bits as floats.
    shown = shorten(f"{value:.0f}" if kind == "integer" else str(value))
    end = "above_max" if side.startswith("above") else "below_min"
    return BadRequest(
        f"Invalid '{path}': {kind} {side} value. Expected a value {bound}, but got {shown} instead.",
        param=path,
        code=f"{kind}_{end}_value",
    )


def _translate_length(finding: ErrorDetails, body: Any) -> BadRequest:
    path, value = locate(body, finding)
    context = finding["ctx"]
    noun, article = ("string", "a string") if isinstance(value, str) else ("array", "an array")
    if "max_length" in context:
        return BadRequest(
            f"Invalid '{path}': {noun} too long. Expected {article} with maximum length {context['max_length']}, but "
            f"got {article} with length {len(value)} instead.",
            param=path,
            code=f"{noun}_above_max_length",
        )
    return BadRequest(
        f"Invalid '{path}': empty {noun}. Expected {article} with minimum length {context['min_length']}, but got an "
        f"empty {noun} instead.",
        param=path,
        code=f"empty_{noun}",
    )


def _translate_pattern(finding: ErrorDetails, body: Any) -> BadRequest:
    path, _ = locate(body, finding)
    return invalid_value(
        f"Invalid '{path}': string does not match pattern. Expected a string that matches the pattern "
        f"'{finding['ctx']['pattern']}'.",
        path,
    )


def _translate_missing(finding: ErrorDetails, body: Any) -> BadRequest:
    return missing_parameter(locate(body, finding)[0])


def _translate_unknown(finding: ErrorDetails, body: Any) -> BadRequest:
    return _unknown(locate(body, finding)[0])


def _unknown(path: str, meant: str | None = None) -> BadRequest:
    hint = "" if meant is None else f" Did you mean '{meant}'?"
    return BadRequest(f"Unknown parameter: '{path}'.{hint}", param=path, code="unknown_parameter")


def _translate_enum(finding: ErrorDetails, body: Any) -> BadRequest:
    path, value = locate(body, finding)
    return _not_supported(path, value, _QUOTED.findall(finding["ctx"]["expected"]))


def _translate_tag(finding: ErrorDetails, body: Any) -> BadRequest:
    path, holder = locate(body, finding)
    tag = finding["ctx"]["discriminator"].strip("'")
    return _not_supported(_join(path, tag), holder[tag], _QUOTED.findall(finding["ctx"]["expected_tags"]))


def _translate_missing_tag(finding: ErrorDetails, body: Any) -> BadRequest:
    path, holder = locate(body, finding)
    return missing_parameter(_join(path, finding["ctx"]["discriminator"].strip("'")), holder)


def _not_supported(path: str, value: Any, supported: list[str]) -> BadRequest:
    quoted = [f"'{name}'" for name in supported]
    listed = " and ".join(quoted) if len(quoted) < 3 else f"{', '.join(quoted[:-1])}, and {quoted[-1]}"
    if not isinstance(value, str):
        return _wrong_type(path, f"one of {listed}", value)
    return invalid_value(f"Invalid value: '{shorten(value)}'. Supported values are: {listed}.", path)


def _translate_other(finding: ErrorDetails, body: Any) -> BadRequest:
    """Translate a refusal of our own validators, or any other finding."""
    path, _ = locate(body, finding)
    context = finding.get("ctx", {})
    if "sentence" not in context:
        # Only messages of our own validators are passed on: others may quote the value.
        why = f": {context['error']}" if finding["type"] == "value_error" else ""
        what = f"Invalid value for '{path}'" if path else "Invalid request"
        return invalid_value(f"{what}{why}.", path or None)
    at: str = context["at"]
    param = f"{path}{at}" if not path or at[:1] in ("", ".", "[") else f"{path}.{at}"
    return BadRequest(context["sentence"].replace("{param}", param), param=param, code=finding["type"])


_TRANSLATORS: Mapping[str, Callable[[ErrorDetails, Any], BadRequest]] = {
    **dict.fromkeys(_EXPECTED_TYPES, _translate_type),
    **dict.fromkeys(_BOUNDS, _translate_range),
    "too_long": _translate_length,
    "too_short": _translate_length,
    "string_too_long": _translate_length,
    "string_too_short": _translate_length,
    "string_pattern_mismatch": _translate_pattern,
    "missing": _translate_missing,
    "extra_forbidden": _translate_unknown,
    "enum": _translate_enum,
    "literal_error": _translate_enum,
    "union_tag_invalid": _translate_tag,
    "union_tag_not_found": _translate_missing_tag,
}
