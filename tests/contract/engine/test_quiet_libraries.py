"""What the real grammar compiler says about a pattern is in no log, and a crash of its process still is."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

_PROCESS = """
import faulthandler, json, os, sys
import xgrammar
from deployments.replica.processes import quiet_libraries

if sys.argv[1] == "quiet":
    quiet_libraries()
for pattern in ("^(?!MARKER)a$", "a$MARKER", "a^MARKER"):
    xgrammar.Grammar.from_json_schema(json.dumps({"type": "string", "pattern": pattern}))
try:
    xgrammar.Grammar.from_json_schema('{"$ref": "MARKER"}')
except RuntimeError:
    pass
print("printed", flush=True)
print("logged", file=sys.stderr)
os.write(2, b"written by C\\n")
faulthandler.enable()
os.abort()
"""


def said_by_process(how: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS, how],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    return done.stdout


def test_libraries_write_no_content_and_a_crash_is_still_seen():
    said = said_by_process("quiet")
    assert "MARKER" not in said
    for line in ("printed", "logged", "written by C", "Fatal Python error: Aborted"):
        assert line in said


def test_the_compiler_writes_content_where_it_is_not_quiet():
    """Otherwise the test before shows nothing."""
    assert said_by_process("loud").count("MARKER") >= 4
