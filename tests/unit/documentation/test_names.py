"""Names of schemas without modules."""

from serve_app.documentation.document import rename, short_names


def test_a_name_without_modules_stays() -> None:
    assert short_names(["Batch"], {}) == {"Batch": "Batch"}


def test_a_class_of_the_openai_package_is_named_after_its_module() -> None:
    names = [
        "openai__types__responses__response_output_text__Logprob",
        "openai__types__responses__response_text_delta_event__Logprob",
        "openai__types__batch__Batch",
        "openai__types__chat__chat_completion__ChatCompletionChoice",
    ]
    assert list(short_names(names, {}).values()) == [
        "ResponseOutputTextLogprob",
        "ResponseTextDeltaEventLogprob",
        "Batch",
        "ChatCompletionChoice",
    ]


def test_a_body_beside_an_answer_of_its_name_is_a_param() -> None:
    ours, theirs = "serve_app__schemas__tools__Tool", "openai__types__tool__Tool"
    assert short_names([ours, theirs], {}) == {ours: "ToolParam", theirs: "Tool"}


def test_names_that_are_taken_get_another_module() -> None:
    first, second = "openai__types__a__owner__Owner", "openai__types__b__owner__Owner"
    assert short_names([first, second], {}) == {first: "Owner", second: "BOwner"}


def test_given_names_are_kept_and_taken() -> None:
    page, other = "Page_Annotated_Union_A__B", "openai__types__a__ItemPage"
    assert short_names([page, other], {page: "ItemPage"}) == {page: "ItemPage", other: "AItemPage"}


def test_a_document_refers_to_the_new_names() -> None:
    document = {
        "paths": {"/a": {"$ref": "#/components/schemas/a__B"}},
        "components": {"schemas": {"a__B": {"items": {"$ref": "#/components/schemas/a__B"}}}},
    }
    assert rename(document, {"a__B": "B"}) == {
        "paths": {"/a": {"$ref": "#/components/schemas/B"}},
        "components": {"schemas": {"B": {"items": {"$ref": "#/components/schemas/B"}}}},
    }
