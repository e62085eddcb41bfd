"""A module for bounded processes: runs the code that it is given."""

import sys


def main() -> None:
    """Run the code on the standard input, as a parser that was broken into would."""
    exec(sys.stdin.read())
