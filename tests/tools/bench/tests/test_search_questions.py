"""The questions by which the search is measured have answers in the documents as they are now."""

from tests.tools.bench.file_search import (
    DOCUMENTS,
    HELD_OUT,
    QUESTIONS,
    find_stale,
    read_docstrings,
    read_documents,
)


def test_every_question_has_its_answer_in_the_documents() -> None:
    assert find_stale(read_documents(DOCUMENTS), QUESTIONS) == []
    assert find_stale(read_docstrings(), HELD_OUT) == []


def test_a_question_without_an_answer_is_found() -> None:
    assert find_stale({"a.md": "The moon is\nmade of cheese."}, [("What?", "made of cheese"), ("Why?", "stone")]) == [
        "Why?"
    ]
