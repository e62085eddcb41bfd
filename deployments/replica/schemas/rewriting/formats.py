"""Texts of the formats that JSON Schema names, as expressions: none takes more than its format has.

Where a format has texts of all languages, they are those of its plainer brother. Other formats say nothing of answers,
as JSON Schema has it.
"""

_DATE = (
    r"(?:[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8])))"
)
_TIME = r"(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]))"
_LABEL = r"[A-Za-z0-9]{1,20}(?:-[A-Za-z0-9]{1,20}){0,2}"
_TOP = r"[A-Za-z][A-Za-z0-9]{0,19}(?:-[A-Za-z0-9]{1,20}){0,2}"
_HOST = rf"(?:(?:{_LABEL}\.){{0,3}}{_TOP})"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_BYTE}(?:\.{_BYTE}){{3}})"
_GROUP = r"[0-9A-Fa-f]{1,4}"
_IPV6 = (
    rf"(?:(?:{_GROUP}:){{7}}{_GROUP}|"
    + "|".join(rf"(?:{_GROUP}:){{{left}}}(?::{_GROUP}){{1,{7 - left}}}" for left in range(1, 7))
    + rf"|:(?::{_GROUP}){{1,7}}|(?:{_GROUP}:){{1,7}}:|::)"
)
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
_EMAIL = rf"(?:{_ATOM}(?:\.{_ATOM}){{0,2}}@{_HOST})"
_CHAR = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_REST = rf"(?:/(?:{_CHAR}+(?:/{_CHAR}*)*)?)?(?:\?(?:{_CHAR}|[/?])*)?(?:#(?:{_CHAR}|[/?])*)?"
_URI = rf"(?:[A-Za-z][A-Za-z0-9+.-]*:(?://{_HOST}(?::[0-9]{{1,4}})?)?{_REST})"
_URI_REFERENCE = rf"(?:{_URI}|(?:[A-Za-z0-9._~-]+)?{_REST})"
_TIME_SPAN = r"T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DAYS = r"(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_POINTER = r"(?:/(?:[^/~]|~[01])*)*"

_BARE = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": f"P(?:{_DAYS}(?:{_TIME_SPAN})?|{_TIME_SPAN}|[0-9]+W)",
    "email": _EMAIL,
    "idn-email": _EMAIL,
    "hostname": _HOST,
    "idn-hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": _URI,
    "iri": _URI,
    "uri-reference": _URI_REFERENCE,
    "iri-reference": _URI_REFERENCE,
    "uri-template": r"(?:[A-Za-z0-9._~:/?#-]|\{[A-Za-z0-9_]+(?:,[A-Za-z0-9_]+)*\})*",
    "uuid": r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}",
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
    "regex": r"[A-Za-z0-9_ ,:;@/-]*",
}
FORMATS = {name: f"^(?:{expression})$" for name, expression in _BARE.items()}
