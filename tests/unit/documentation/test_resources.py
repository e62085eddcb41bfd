"""Routes by resource."""

import pytest

from serve_app.documentation.guides import GUIDE, read_chapters
from serve_app.documentation.resources import RESOURCES, resource_of, resources_of


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/files/{file_id}/content", "Files"),
        ("/rerank", "Rerank and score"),
        ("/v1/organization/admin/batches", "Administration"),
        ("/v1/organization/admin/keys/{key_id}", "API keys"),
        ("/v1/completions", "Completions"),
        ("/v1/keyword_lists/{id}", "Keyword lists"),
    ],
)
def test_a_path_belongs_to_a_resource(path: str, name: str) -> None:
    assert resource_of(path).name == name


def test_resources_are_in_the_order_of_the_reference_and_new_ones_last() -> None:
    names = [one.name for one in resources_of(["/v1/words", "/livez", "/v1/files", "/v1/chat/completions"])]
    assert names == ["Chat completions", "Files", "Service", "Words"]


def test_slugs_are_their_own() -> None:
    assert len({one.slug for one in RESOURCES}) == len(RESOURCES)


def test_every_resource_names_a_guide_that_exists() -> None:
    known = {guide.address for chapter in read_chapters() for guide in chapter.guides}
    assert [one.name for one in RESOURCES if one.guide and f"{GUIDE}/{one.guide.partition('#')[0]}" not in known] == []
