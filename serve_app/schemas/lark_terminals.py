"""The terminals that a Lark grammar imports from `common`, each as one regular expression.

Where Lark's own terminal can be read in several ways, such as a quoted text that holds quotes, the expression here
matches only texts that every reading takes.
"""

from collections.abc import Mapping
from types import MappingProxyType

_INT = "[0-9]+"
_EXPONENT = rf"[eE][+\-]?{_INT}"
_DECIMAL = rf"(?:{_INT}\.(?:{_INT})?|\.{_INT})"
_FLOAT = rf"(?:{_INT}{_EXPONENT}|{_DECIMAL}(?:{_EXPONENT})?)"
_NUMBER = rf"(?:{_FLOAT}|{_INT})"

COMMON: Mapping[str, str] = MappingProxyType(
    {
        "DIGIT": "[0-9]",
        "HEXDIGIT": "[0-9a-fA-F]",
        "INT": _INT,
        "SIGNED_INT": rf"[+\-]?{_INT}",
        "DECIMAL": _DECIMAL,
        "FLOAT": _FLOAT,
        "SIGNED_FLOAT": rf"[+\-]?{_FLOAT}",
        "NUMBER": _NUMBER,
        "SIGNED_NUMBER": rf"[+\-]?{_NUMBER}",
        "LCASE_LETTER": "[a-z]",
        "UCASE_LETTER": "[A-Z]",
        "LETTER": "[a-zA-Z]",
        "WORD": "[a-zA-Z]+",
        "CNAME": "[_a-zA-Z][_a-zA-Z0-9]*",
        "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
        "WS_INLINE": r"[ \t]+",
        "WS": r"[ \t\f\r\n]+",
        "CR": r"\r",
        "LF": r"\n",
        "NEWLINE": r"(?:\r?\n)+",
        "SH_COMMENT": r"\#[^\n]*",
        "CPP_COMMENT": r"\/\/[^\n]*",
        "C_COMMENT": r"\/\*(?:[^*]|\*+[^*\/])*\*+\/",
        "SQL_COMMENT": r"--[^\n]*",
    }
)
