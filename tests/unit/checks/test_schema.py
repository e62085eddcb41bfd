"""The schema describes whole files: it refuses unknown names, and says what each name means."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from deployments.config import Section
from serve_app.checks.schema import file_schema
from serve_app.checks.shapes import SHAPES

CONFIGS = Path(__file__).parents[3] / "configs"
SCHEMA = file_schema()
LOCAL: dict[str, Any] = yaml.safe_load((CONFIGS / "local.yaml").read_text())


def is_accepted(document: Any) -> bool:
    return not any(jsonschema.Draft202012Validator(SCHEMA).iter_errors(document))


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_files_of_the_project_are_accepted(path: Path) -> None:
    assert is_accepted(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: ".".join(str(part) for part in shape.pattern if part))
def test_a_name_that_does_not_exist_is_refused_in_every_section(shape: Any) -> None:
    document = yaml.safe_load((CONFIGS / "local.yaml").read_text())
    found = document
    for part in shape.pattern:
        found = found[0] if part is None else found.setdefault(part, {})
    found["no_such_name"] = 1
    assert not is_accepted(document)
    del found["no_such_name"]
    assert is_accepted(document)


def test_every_setting_of_manta_has_a_description() -> None:
    bare = []
    for name, definition in SCHEMA["$defs"].items():
        bare += [
            f"{name}.{one}" for one, about in definition.get("properties", {}).items() if "description" not in about
        ]
    sections = {kind.__name__ for kind in Section.__subclasses__()}
    ours = [one for one in bare if one.partition(".")[0] in sections or "Config" in one.partition(".")[0]]
    assert [one for one in ours if not one.startswith("BackpressureConfig")] == []


def test_no_description_lists_the_settings_again() -> None:
    assert [
        name for name, about in SCHEMA["$defs"].items() if "Args:" in about.get("description", "") and "Section" in name
    ] == []
    assert "Args:" not in SCHEMA["$defs"]["ServedModel"]["description"]
