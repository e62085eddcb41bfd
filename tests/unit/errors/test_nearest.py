"""Only a name that is close is suggested, and a hostile one costs nothing."""

import time

from serve_app.errors.nearest import LIKELY, closest_to, misspelt


def test_only_a_close_name_is_offered() -> None:
    assert closest_to("GPUS", ("CPU", "GPU")) == "GPU"
    assert closest_to("sandboxes", ("CPU", "GPU", "memory")) is None
    assert closest_to("cert", ("certificate", "key")) == "certificate"
    assert closest_to("ce", ("certificate", "key")) is None


def test_names_that_are_only_alike_are_not_likely() -> None:
    assert closest_to("system", ("stream", "stop")) == "stream"
    assert closest_to("system", ("stream", "stop"), LIKELY) is None
    assert closest_to("temprature", ("temperature", "top_p"), LIKELY) == "temperature"


def test_a_misspelt_name_stands_for_the_missing_one() -> None:
    assert misspelt("messages", ["model", "mesages"]) == "mesages"
    assert misspelt("messages", ["messages", "Messages"]) == "Messages"
    assert misspelt("messages", ["model", "prompt"]) is None
    assert misspelt("text_1", []) is None


def test_long_names_and_many_of_them_cost_nothing() -> None:
    long, many = "message_" * 1_000_000, ["message_" * 7] * 1_000_000
    started = time.process_time()
    assert closest_to(long, ["messages"]) is None
    assert misspelt("messages", [*many, "mesages"]) is None
    assert time.process_time() - started < 0.5
