"""What an operator may say about tools."""

import pytest
from pydantic import ValidationError

from deployments.tools.config import CodeInterpreterConfig, ToolsConfig


def test_everything_is_off_unless_it_is_named():
    assert ToolsConfig().code_interpreter is None
    assert ToolsConfig().web_search is None
    assert ToolsConfig().outbound.allowed_networks == ()
    assert ToolsConfig.model_validate({"code_interpreter": {}}).code_interpreter == CodeInterpreterConfig()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"code_interpretr": {}}, "code_interpretr"),
        ({"code_interpreter": {"num_worm": 1}}, "num_worm"),
        ({"code_interpreter": {"memory_limit": "2g"}}, "memory_limit"),
        ({"code_interpreter": {"idle_minutes": 21}}, "idle_minutes"),
        ({"web_search": {}}, "provider"),
        ({"web_search": {"provider": {"name": "google"}}}, "provider"),
        ({"web_search": {"provider": {"name": "brave", "api_key": "BSA123"}}}, "api_key"),
        ({"web_search": {"provider": {"name": "brave"}}}, "api_key"),
        ({"web_search": {"provider": {"name": "searxng", "url": "searxng:8080"}}}, "url"),
        ({"web_search": {"provider": {"name": "searxng", "url": "http://user:password@searxng"}}}, "url"),
        ({"outbound": {"allowed_networks": ["10.0.0.0/33"]}}, "allowed_networks"),
        ({"code_interpreter": {"num_warm": 9, "max_containers": 8}}, "num_warm is more than max_containers"),
    ],
)
def test_a_fault_is_named(given, field):
    with pytest.raises(ValidationError, match=field):
        ToolsConfig.model_validate(given)


BRAVE = {"name": "brave", "api_key": {"env": "BRAVE_API_KEY"}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"code_interpreter": {"num_processes": 8}},
            "the setting num_processes is gone: a container may always run 32 processes now; remove it.",
        ),
        (
            {"web_search": {"provider": BRAVE, "page_timeout_s": 5}},
            "the setting page_timeout_s is gone: a page always has 20 seconds now; remove it.",
        ),
    ],
)
def test_a_setting_that_is_gone_is_refused_with_what_to_do(given, message):
    with pytest.raises(ValidationError) as refused:
        ToolsConfig.model_validate(given)
    assert refused.value.errors()[0]["msg"] == f"Value error, {message}"


def test_the_limits_of_a_sandbox_follow():
    limits = CodeInterpreterConfig(memory_limit="4g", work_mib=100, call_timeout_s=5).limits
    assert (limits.memory_bytes, limits.work_bytes, limits.file_bytes) == (4 << 30, 100 << 20, 100 << 20)
    assert limits.call_s == 5
