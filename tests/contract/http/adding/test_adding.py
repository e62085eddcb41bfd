"""How many files a feature takes: each is added to a copy of the code, and works there through the HTTP application."""

import shutil
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from serve_app.config import ServiceConfig
from tests.contract.http.answers import MODEL
from tests.contract.http.operator.test_keys import ADMIN, KEYS

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
NAMES = "deployments/operations.py"

_DICE_CONFIG = '''

class DiceConfig(Section):
    """Dice, thrown together."""

    num_dice: int = 1
'''
EDITS = {
    "keywords": {
        NAMES: {
            '    MCP = "mcp"\n': '    KEYWORDS = "keywords"\n',
            '"/v1/responses", "input"),\n': '    Operation.KEYWORDS: ModelOperation(("embed",), "/v1/keywords"),\n',
        }
    },
    "dice": {
        NAMES: {'    MCP = "mcp"\n': '    DICE = "dice"\n'},
        "deployments/tools/config.py": {
            "    web_search: WebSearchConfig | None = None\n": "    dice: DiceConfig | None = None\n",
            "        return self.max_answer_mib * MIB\n": _DICE_CONFIG,
        },
    },
}
"""What is added to existing files, after which line; the new files are in a folder of the feature's name."""


def add_feature(name: str, code: Path) -> list[str]:
    """Copy the code with a feature in it; return the files that the feature took."""
    for package in ("batch", "deployments", "serve_app"):
        shutil.copytree(ROOT / package, code / package, ignore=shutil.ignore_patterns("__pycache__"))
    touched = [path.relative_to(HERE / name) for path in (HERE / name).rglob("*.py")]
    for path in touched:
        assert not (code / path).exists()
        (code / path).parent.mkdir(exist_ok=True)
        shutil.copy(HERE / name / path, code / path)
    for path, additions in EDITS[name].items():
        text = (code / path).read_text()
        for line, added in additions.items():
            assert text.count(line) == 1
            text = text.replace(line, line + added)
        (code / path).write_text(text)
    return [*map(str, touched), *EDITS[name]]


@pytest.mark.parametrize("feature", EDITS)
def test_operation_and_tool_take_four_files(feature, tmp_path):
    assert len(add_feature(feature, tmp_path)) == 4


@pytest.mark.exhaustive
@pytest.mark.parametrize("feature", EDITS)
def test_operation_and_tool_work_once_they_are_added(feature, tmp_path):
    add_feature(feature, tmp_path)
    paths = f"pythonpath={tmp_path} {ROOT}"
    check = HERE / f"check_{feature}.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", paths, str(check)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stdout


@pytest.fixture
def research(world):
    """A tier that a configuration alone names, and how it is called there."""
    limits = {"requests_per_minute": 2, "tokens_per_minute": 5000, "enqueued_tokens": None}
    model = {"id": "m", "source": "demo:chat", "max_model_len": 8}
    config = ServiceConfig.model_validate({"models": [model], "state": {"tiers": {"research": limits}}})
    world.tiers = config.state.tiers
    return "research"


async def test_tier_takes_no_file(world, research, key_store):
    world.principal(ADMIN, key_id="key_admin", is_admin=True)
    async with world.http(authorization=f"Bearer {ADMIN}") as http:
        made = (await http.post(KEYS, json={"account": "acme", "tier": research})).json()
    _, [key] = await key_store.changes_since(0)
    world.gatekeeper.principals[made["secret"]] = key.principal
    chats = world.client(made["secret"]).chat.completions.with_raw_response
    hello = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
    answered = await chats.create(**hello)
    assert answered.headers["x-ratelimit-limit-requests"] == "2"
    assert answered.headers["x-ratelimit-limit-tokens"] == "5000"
    await chats.create(**hello)
    with pytest.raises(openai.RateLimitError):
        await chats.create(**hello)
