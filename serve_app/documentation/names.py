"""Short names for the schemas of the OpenAPI document, where pydantic tells classes of one name apart by module."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

_REFERENCE = re.compile(rb'"#/components/schemas/([^"]+)"')

Json = dict[str, Any]


def short_names(names: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return a name without modules for each name; those in `given` keep what is given."""
    names = list(names)
    chosen = {name: given.get(name, name) for name in names if name in given or "__" not in name}
    taken = set(chosen.values())
    for name in names:
        if name not in chosen:
            chosen[name] = next(one for one in _candidates(name) if one not in taken)
            taken.add(chosen[name])
    return chosen


def _candidates(name: str) -> Iterable[str]:
    """Yield names for a class that is named with its modules: the more modules, the later."""
    *modules, own = name.split("__")
    if modules[0] != "openai":  # A body of this service, beside the answer of the `openai` package with its name.
        yield f"{own}Param"
    while modules:
        noun = "".join(word.capitalize() for word in modules.pop().split("_"))
        own = noun if noun.endswith(own) else own if own.startswith(noun) else noun + own
        yield own


def rename(document: Json, names: Mapping[str, str]) -> Json:
    """Return a document whose schemas have other names."""
    renamed = _REFERENCE.sub(
        lambda found: f'"#/components/schemas/{names.get(found[1].decode(), found[1].decode())}"'.encode(),
        orjson.dumps(document),
    )
    result: Json = orjson.loads(renamed)
    schemas = result["components"]["schemas"]
    result["components"]["schemas"] = {names.get(name, name): schemas[name] for name in sorted(schemas)}
    return result
