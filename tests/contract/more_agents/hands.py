"""What every agent can do in its folder, and where the service is."""

import os
import subprocess
from pathlib import Path

ADDRESS = os.environ["ADDRESS"]
API_KEY = os.environ["API_KEY"]
MODEL = os.environ["MODEL"]
PROMPT = os.environ["PROMPT"]
INTERFACE = os.environ["INTERFACE"]
SHOP = os.environ["SHOP"]
BASE_URL = f"{ADDRESS}/v1"


def read_file(path: str) -> str:
    """Read a file."""
    return Path(path).read_text(encoding="utf-8")


def write_file(path: str, text: str) -> str:
    """Write a text into a file."""
    Path(path).write_text(text, encoding="utf-8")
    return "Written."


def run_command(command: str) -> str:
    """Run a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout


HANDS = (read_file, write_file, run_command)
