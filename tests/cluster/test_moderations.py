"""Moderations by a guard model that vLLM runs: the question, the verdict and an answer that is none.

The demo model knows nothing of harm, but repeats what it is asked to: the question makes it name what a text says.
"""

import pytest
from openai import InternalServerError, OpenAI

pytestmark = pytest.mark.cluster


def test_a_guard_model_names_categories(client: OpenAI) -> None:
    answer = client.moderations.create(model="omni-moderation-latest", input=["violence", "safe", "unsafe"])
    violent, clear, flagged = answer.results
    assert violent.flagged
    assert [name for name, is_in in violent.categories.to_dict().items() if is_in] == ["violence"]
    assert not clear.flagged
    assert flagged.flagged
    assert not any(flagged.categories.to_dict().values())


def test_an_answer_that_is_no_verdict_is_a_failure(client: OpenAI) -> None:
    for texts in (["Hello!"], ["safe", "Hello!"]):
        with pytest.raises(InternalServerError) as caught:
            client.moderations.create(model="omni-moderation-latest", input=texts)
        assert caught.value.status_code == 503
        assert "gave no verdict" in str(caught.value)
