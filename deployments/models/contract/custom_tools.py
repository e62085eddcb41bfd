"""Custom tools, whose input is a text, on their way to an engine: each is a function with one argument.

The body of a chat names them in `custom_tools`, with the grammar of the input in EBNF, or null for any text.
"""

from typing import Final

FIELD: Final = "custom_tools"
INPUT: Final = "input"
"""The argument."""
