"""Sets of characters as sorted ranges of code points."""

from collections.abc import Iterable

Ranges = tuple[tuple[int, int], ...]

LAST = 0x10FFFF


def union(parts: Iterable[tuple[int, int]]) -> Ranges:
    """Return sorted ranges, joined where they touch."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(parts):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return tuple(joined)


def complement(ranges: Ranges) -> Ranges:
    """Return all other characters."""
    others, following = [], 0
    for low, high in ranges:
        if low > following:
            others.append((following, low - 1))
        following = high + 1
    if following <= LAST:
        others.append((following, LAST))
    return tuple(others)


def intersection(one: Ranges, other: Ranges) -> Ranges:
    """Return the characters that are in both."""
    return tuple(
        (max(low, other_low), min(high, other_high))
        for low, high in one
        for other_low, other_high in other
        if max(low, other_low) <= min(high, other_high)
    )


def of(text: str) -> Ranges:
    """Return the characters of a text."""
    return union((ord(char), ord(char)) for char in text)


SAFE = union([(0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, LAST)])
"""The characters that JSON strings hold unescaped: no quotes, backslashes, control characters or surrogates."""
TEXT = union([(0, 0xD7FF), (0xE000, LAST)])
"""All characters but surrogates."""
ASCII = ((0, 0x7F),)
DIGITS = ((0x30, 0x39),)
WORD = union([*DIGITS, (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
SPACES = union(
    [
        *((0x09, 0x0D), (0x1C, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E)),
        *((0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
    ]
)
"""White space in any dialect of regular expressions."""
SURE_SPACES = union([(0x09, 0x0D), (0x20, 0x20)])
BREAKS = of("\n\r\u2028\u2029")
"""What a dot does not match, in Python or in JavaScript."""
