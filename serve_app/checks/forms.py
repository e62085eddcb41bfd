"""The forms that settings of text may have, in words: few people read regular expressions."""

from collections.abc import Mapping

FORMS: Mapping[str, str] = {
    r"^[a-z]{3}$": "three small letters, such as usd",
    r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$": (
        "letters, digits, dots, hyphens and underscores, with at most one slash, such as qwen/qwen3-8b"
    ),
    r"^(vllm|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)$": "vllm, or a function, such as package.module:function",
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "letters, digits, dots, hyphens and underscores",
    r"^https?://[^\s/?#@]+(/[^\s?#]*)?$": "an address, such as https://example.com/path, without a user or a query",
    r"^[A-Za-z_][A-Za-z0-9_]*$": "the name of an environment variable, such as MANTA_PEPPER",
    r"^(\[\]|[A-Za-z0-9_-]+(\[\])*)(\.(\[\]|[A-Za-z0-9_-]+(\[\])*))*$": "the way to a field, such as input[].note",
    r"^(\*|https?://[^/\s]+)$": "an origin without a path, such as https://example.com, or *",
    r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$": "a DNS name, such as manta.internal",
    r"^[a-z][a-z0-9-]{0,15}$": "at most 16 small letters, digits and hyphens, with a letter first, such as eu-west",
    r"^[a-z0-9][a-z0-9_-]*$": "small letters, digits, hyphens and underscores, such as premium",
    r"^[\x21-\x7e]+$": "text of ASCII without blanks, such as qwen/*",
    r"^[A-Za-z0-9][A-Za-z0-9 ._@-]*$": "letters, digits, blanks and . _ @ -, with a letter or digit first",
    r"^[a-z0-9-]{1,16}$": "at most 16 small letters, digits and hyphens",
}
"""By the pattern of the setting, or of a key's field."""
