"""File search on the real service: real vectors, an index that every ingress replica searches, a model that asks."""

import pytest
from openai import OpenAI

from tests.service import TRAINED, Service

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

DOCUMENTS = {
    "pets.md": "A cat sleeps on the warm window sill all afternoon, and wakes when somebody opens a tin.",
    "banks.md": "Central banks raised interest rates again, to slow the rise of prices.",
    "boats.md": "Before the storm the fishermen pulled their boats ashore and mended the nets.",
    "mills.md": "Windmills came from Tallinn.",
}


@pytest.fixture(scope="module")
def store_id(client: OpenAI) -> str:
    """A store that holds the documents, indexed."""
    files = [client.files.create(file=(name, text.encode()), purpose="assistants") for name, text in DOCUMENTS.items()]
    store = client.vector_stores.create(name="documents", file_ids=[file.id for file in files])
    for file in files:
        done = client.vector_stores.files.poll(file.id, vector_store_id=store.id, poll_interval_ms=200)
        assert done.status == "completed", done.last_error
    assert client.vector_stores.retrieve(store.id).status == "completed"
    return store.id


def test_what_was_put_in_is_found_by_its_meaning_from_every_ingress_replica(
    service: Service, key: str, store_id: str
) -> None:
    for url in service.ingress_urls():
        with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=60) as direct:
            for query, name in (
                ("Where does the kitten nap?", "pets.md"),
                ("What became of monetary policy?", "banks.md"),
                ("How did sailors prepare for bad weather?", "boats.md"),
            ):
                first, *_ = direct.vector_stores.search(store_id, query=query).data
                assert (first.filename, first.content[0].text) == (name, DOCUMENTS[name])


def test_the_model_asks_it_and_cites_the_file(client: OpenAI, store_id: str) -> None:
    response = client.responses.create(
        model=TRAINED,
        input="What do the files say about windmills?",
        tools=[{"type": "file_search", "vector_store_ids": [store_id], "max_num_results": 2}],
        include=["file_search_call.results"],
        temperature=0,
    )
    call, message = response.output
    assert call.type == "file_search_call"
    assert (call.status, call.queries) == ("completed", ["windmills"])
    assert call.results is not None
    assert call.results[0].filename == "mills.md"
    assert message.type == "message"
    (part,) = message.content
    assert part.type == "output_text"
    assert part.text.startswith(DOCUMENTS["mills.md"])
    assert [(one.type, one.filename) for one in part.annotations if one.type == "file_citation"] == [
        ("file_citation", "mills.md")
    ]


def test_a_file_that_is_deleted_is_found_no_more(client: OpenAI, store_id: str) -> None:
    file = client.files.create(
        file=("secret.md", b"The password of the lighthouse is heliotrope."), purpose="assistants"
    )
    client.vector_stores.files.create_and_poll(file.id, vector_store_id=store_id, poll_interval_ms=200)
    query = "password of the lighthouse"
    assert client.vector_stores.search(store_id, query=query).data[0].filename == "secret.md"
    client.files.delete(file.id)
    assert "secret.md" not in {hit.filename for hit in client.vector_stores.search(store_id, query=query).data}
