"""The end marker of a call as text of the call, as where a model edits the template of a chat.

vLLM's parsers for Hermes and Longcat end a call at the first `</tool_call>`, also within a string of its JSON. There
the last character of the marker is escaped, which is the same string for JSON, and no marker for a parser.
"""

import re
from typing import Any

_FAMILY = frozenset({"hermes", "longcat"})
"""The structural tags of parsers that look for JSON between two markers; others find its end themselves."""
_TEXT = r'(?:[^"\\\x00-\x1f]++|\\.)*+'
# A quote that something else than JSON follows was meant to be text: the call is no JSON, and ends at any marker.
_WITHIN_STRING = re.compile(rf'(?:[^"]*+"{_TEXT}"(?=\s*[,:}}\]]))*+[^"]*+"{_TEXT}')


def without_end_markers(tools: Any, before: str, text: str) -> str:
    """Return `text`, which continues `before`, with the end markers within strings of calls escaped.

    `tools` is vLLM's parser of calls. An end marker may be split between `before` and `text`.
    """
    if tools.structural_tag_model not in _FAMILY:
        return text
    start, end = tools.tool_call_start_token, tools.tool_call_end_token
    at = max(0, len(before) - len(end) + 1)
    if end not in before[at:] + text:
        return text
    whole = before + text
    while (at := whole.find(end, at)) != -1:
        last = at + len(end) - 1
        begun = whole.find(start, whole.rfind(end, 0, at) + 1, at)
        if begun != -1 and _WITHIN_STRING.fullmatch(whole, begun + len(start), at):
            whole = f"{whole[:last]}\\u{ord(whole[last]):04x}{whole[last + 1 :]}"
        at = last
    return whole[len(before) :]
