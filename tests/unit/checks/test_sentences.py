"""Whatever a setting is refused for is said in plain words, without pydantic's."""

import re
import warnings
from collections.abc import Iterator
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from deployments.state.identity.keys import NewKey
from deployments.state.identity.tiers import TierName
from serve_app.checks.sentences import FORMS, SENTENCES, faults_in
from serve_app.checks.shapes import SHAPES
from serve_app.config import ServiceConfig
from serve_app.validation.fields import models_in

PHRASES = re.compile(
    r"Input should|valid (tuple|dictionary|string|integer|number)|Value error|inputs are not|Field req"
)
WRONG: list[Any] = [
    *("", "text", "X" * 3000, "ftp://x", "http://x/ y", "/%", "1.2.3.4/99"),
    *(0, -1, 10**30, 1.5, float("nan"), True, None),
    *([], [1], ["text"], [[]], [{}], {}, {"x": 1}, {"name": "text"}, {"env": 1}, {"BAD NAME": {}}),
]
MODEL = {"id": "m", "source": "demo:chat", "device": "cpu", "engine_kwargs": {"max_model_len": 4096}}


def sections() -> Iterator[type[BaseModel]]:
    pending = [shape.kind() for shape in SHAPES]
    seen: set[type[BaseModel]] = set()
    while pending:
        kind = pending.pop()
        if kind not in seen:
            seen.add(kind)
            pending += [inner for field in kind.model_fields.values() for inner in models_in(field.annotation)]
            yield kind


def types_of(given: Any, kind: type[BaseModel]) -> set[str]:
    """Return pydantic's types of the errors; none where Ray's own code fails."""
    try:
        with warnings.catch_warnings(action="ignore"):
            kind.model_validate(given, extra="forbid")
    except ValidationError as error:
        return {one["type"] for one in error.errors()}
    except (AttributeError, ImportError, TypeError, ValueError):
        pass
    return set()


def said_of(given: Any) -> list[tuple[Any, str]]:
    return [(fault.place, fault.message) for fault in faults_in(given, ServiceConfig)]


@pytest.mark.parametrize("kind", list(sections()), ids=lambda kind: kind.__name__)
def test_every_wrong_value_of_every_setting_has_a_plain_sentence(kind: type[BaseModel]) -> None:
    own = {*SENTENCES, "missing", "extra_forbidden"}
    for name in kind.model_fields:
        for value in WRONG:
            given = {name: value}
            assert [fault for fault in faults_in(given, kind) if PHRASES.search(fault.message)] == [], (name, value)
            assert types_of(given, kind) <= own, (name, value)


def patterns_in(annotation: Any) -> Iterator[str]:
    for about in getattr(annotation, "__metadata__", ()):
        yield from (one.pattern for one in (about, *getattr(about, "metadata", ())) if getattr(one, "pattern", None))
    for inner in get_args(annotation):
        yield from patterns_in(inner)


def test_every_pattern_of_a_setting_or_a_key_has_words_and_none_is_left_over() -> None:
    fields = [field for kind in (*sections(), NewKey) for field in kind.model_fields.values()]
    patterns = {pattern for field in fields for pattern in patterns_in(Annotated[field.annotation, *field.metadata, 0])}
    assert patterns | set(patterns_in(TierName)) == set(FORMS)


def test_a_misspelt_name_is_one_fault() -> None:
    model = {**MODEL, "sauce": "demo:chat"}
    del model["source"]
    assert said_of({"models": [model]}) == [(("models", 0), 'unknown setting "sauce". Did you mean "source"?')]
    assert said_of({"modles": [MODEL]}) == [((), 'unknown setting "modles". Did you mean "models"?')]


def test_a_wrong_entry_does_not_make_its_list_short() -> None:
    assert said_of({"models": [{**MODEL, "device": "gppu"}]}) == [
        (("models", 0, "device"), 'should be "cpu" or "gpu", not "gppu". Did you mean "gpu"?')
    ]
    assert said_of({"models": []}) == [(("models",), "needs at least one entry")]


def test_of_several_forms_the_one_that_was_meant_is_explained() -> None:
    def database(value: Any) -> list[tuple[Any, str]]:
        return said_of({"models": [MODEL], "state": {"database_url": value}})

    place = ("state", "database_url")
    assert database({"enw": "URL"}) == [(place, 'unknown setting "enw". Did you mean "env"?')]
    assert database(["x"]) == [
        (place, "should be text, or {env: NAME}, or {file: PATH}"),
    ]
    search = said_of(
        {"models": [MODEL], "tools": {"web_search": {"provider": {"name": "brave", "apikey": {"env": "K"}}}}}
    )
    assert search == [(("tools", "web_search", "provider"), 'unknown setting "apikey". Did you mean "api_key"?')]


def test_a_fault_of_a_whole_section_stands_at_the_setting_that_it_names() -> None:
    model = {"id": "m", "source": "demo:chat"}
    (found,) = said_of({"models": [model]})
    assert found == (("models", 0, "max_model_len"), "say the context size here or in engine_kwargs.max_model_len")


def test_a_number_where_text_is_wanted_is_shown_in_quotes() -> None:
    assert said_of({"models": [{**MODEL, "env": {"OMP_NUM_THREADS": 1}}]}) == [
        (("models", 0, "env", "OMP_NUM_THREADS"), 'should be text (in quotes: "1")')
    ]


def test_only_a_close_name_is_offered() -> None:
    assert said_of({"models": [MODEL], "zzz": 1}) == [((), 'unknown setting "zzz"')]


def test_what_ray_cannot_even_check_is_a_fault() -> None:
    given = {"policy": {"policy_function": "no.such.module:policy"}}
    (kind,) = {shape.kind() for shape in SHAPES if shape.kind().__name__ == "AutoscalingConfig"}
    (fault,) = faults_in(given, kind, ("here",))
    assert fault.place == ("here",)
    assert "No module named 'no'" in fault.message
