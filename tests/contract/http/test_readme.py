"""The README's programs, run as a reader would: pasted as they stand, but for the address, the key and the model."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

from tests.contract.http.answers import MODEL, SECRET

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")


def block(section: str, language: str) -> str:
    """Return the first block of code in a language under a heading."""
    text = README.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1].replace("manta/demo-chat", MODEL)


async def run(code: str, address: str, directory: Path) -> str:
    """Return what a program prints that talks to the service at an address."""
    code = code.replace("http://127.0.0.1:8000", address).replace("sk-manta-...", SECRET)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=directory, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    printed, told = await process.communicate()
    assert process.returncode == 0, told.decode()
    return printed.decode()


@pytest.mark.parametrize("is_valid", [True, False])
async def test_the_program_that_runs_a_batch(batching, live, tmp_path, is_valid):
    line = block("Files and batches", "json")
    (tmp_path / "requests.jsonl").write_text(line if is_valid else line + "no JSON\n")
    printed = await run(block("Files and batches", "python"), live, tmp_path)
    if is_valid:
        answer = json.loads(printed.strip().splitlines()[-1])
        assert answer["custom_id"] == json.loads(line)["custom_id"]
        assert answer["response"]["body"]["choices"][0]["message"]["content"] == "Hello there!"
    else:
        assert "failed" in printed
        assert "line=2" in printed
