"""Where a message cites pages: exact places, whatever stands around them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.operations.web_search.citations import cite, same, texts_of, titles_of

PAGE = "https://a.example/x_(y)?q=1&r=2"
TITLES = {same(PAGE): "A page", same("http://[2001:db8::1]/z"): "Six"}


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        (f"[label]({PAGE})", [f"[label]({PAGE})"]),
        (f"[label](<{PAGE}>)", [f"[label](<{PAGE}>)"]),
        (f"([label]({PAGE}#part)).", [f"[label]({PAGE}#part)"]),
        (f"![image]({PAGE})", [f"[image]({PAGE})"]),
        (f"See {PAGE}.", [PAGE]),
        (f"({PAGE})", [PAGE]),
        (f"<{PAGE}>, '{PAGE}/'", [PAGE, f"{PAGE}/"]),
        (f"**{PAGE}**", [PAGE]),
        (f"[{PAGE}]({PAGE})", [f"[{PAGE}]({PAGE})"]),
        (f"[a [b]({PAGE})", [f"[b]({PAGE})"]),
        ("HTTP://A.example", []),
        ("http://[2001:db8::1]/z", ["http://[2001:db8::1]/z"]),
        ("https://A.Example/x_(y)?q=1&r=2", ["https://A.Example/x_(y)?q=1&r=2"]),
        (f"{PAGE}3 {PAGE}/more https://b.example/ https:// [x](", []),
        ("", []),
    ],
)
def test_links_to_pages_that_were_found_are_cited(text, cited):
    assert [text[one["start_index"] : one["end_index"]] for one in cite(text, TITLES)] == cited


@given(st.lists(st.sampled_from([PAGE, f"[l]({PAGE})", "https://", "[", "](", ")", " ", "é🌞", "."])))
def test_places_are_exact_and_in_order(pieces):
    text = "".join(pieces)
    end = 0
    for one in cite(text, TITLES):
        assert one["title"] == "A page"
        assert end <= one["start_index"] < one["end_index"] <= len(text)
        assert one["url"] in text[one["start_index"] : one["end_index"]]
        end = one["end_index"]


@pytest.mark.parametrize(
    "text", ["[" * 50_000, "https://" * 10_000, "https://a" + "(" * 50_000, "[a](https://" * 5_000]
)
def test_no_text_takes_long(text):
    assert cite(text, TITLES) == []


def test_what_a_conversation_has_found_and_said():
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "function_call_output", "output": "rain"},
        {"type": "function_call_output", "output": [{"type": "input_text", "text": "snow"}]},
        {
            "type": "web_search_call",
            "action": {"type": "search", "sources": [{"type": "url", "url": "https://s.example/"}]},
        },
        {"type": "web_search_call", "action": {"type": "open_page", "url": "https://o.example/p"}},
        {"type": "web_search_call", "action": {"type": "search", "query": "q"}},
        {"type": "web_search_call", "status": "failed"},
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {
                    "type": "output_text",
                    "text": "Said.",
                    "annotations": [
                        {"type": "url_citation", "url": "https://o.example/p", "title": "O"},
                        {"type": "file_citation", "file_id": "file-1"},
                        5,
                    ],
                }
            ],
        },
    ]
    assert list(texts_of(items)) == ["Hello", "rain", "snow"]
    assert titles_of(items) == {"https://s.example": "https://s.example/", "https://o.example/p": "O"}
