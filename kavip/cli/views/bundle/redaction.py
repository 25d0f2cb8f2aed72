"""
Secrets in text that may otherwise be in a bundle: messages, Events, logs, configurations.

kavip writes no password into these. Users and other programs may: in a verbatim line, the URL of a check, an image's
name. A secret without a form or a name beside it cannot be found. Each pattern takes linear time.
"""

import re
from typing import Final

REMOVED: Final = "(removed)"

_PEM: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{1,64}-----(?:.{0,16384}?-----END [A-Z0-9 ]{1,64}-----|.{0,16384})", re.DOTALL
)
_PEM_END: Final = re.compile(r"^(?:[^\n]*\n)?[^\n]*?-----END [A-Z0-9 ]{1,64}-----", re.MULTILINE)
"""The last two lines of a PEM block whose beginning is not in the text; longer ones are keys by their length."""
_PASSWORD_LINE: Final = re.compile(r"(\bauth_pass)\b[^\n]*", re.IGNORECASE)
_CREDENTIALS: Final = re.compile(r"(\b(?:bearer|basic)[ \t]{1,8})[^\s\"',;]+", re.IGNORECASE)
_HEADER: Final = re.compile(r"(\b(?:authorization|cookie)[ \t]{0,8}[:=][ \t]{0,8})[^\n]+", re.IGNORECASE)
"""To the end of the line: a header has any number of words, some of them in quotes."""
_NAME: Final = (
    r"(?:passw(?:or)?d|passphrase|credential|secret|token|api[_-]?key|private[_-]?key|access[_-]?key)[\w-]{0,32}"
)
_VALUE: Final = r"""(\\"(?:\\\\\\?[^\n]|\\[^"\\\n]|[^"\\\n])*(?:\\?")?|"(?:\\[^\n]|[^"\\\n])*"?|'(?:\\[^\n]|[^'\\\n])*'?
    |\\?[\[({][^\])}\n]*[\])}]?|[^\s"']+)"""
"""In quotes that are escaped themselves, in quotes, in brackets, or a word."""
_NAMED: Final = re.compile(
    rf"""((?:{_NAME}|authorization[\w-]{{0,32}}|cookie[\w-]{{0,32}}|pass|pwd)\\?["']?
    [ \t]{{0,8}}(?:=>|:=|[:=])[ \t]{{0,8}}){_VALUE}""",
    re.IGNORECASE | re.VERBOSE,
)
_OPTION: Final = re.compile(
    rf"""((?<![\w-])--[\w-]{{0,32}}?{_NAME}\\?["']?,?[ \t]{{1,8}}){_VALUE}""", re.IGNORECASE | re.VERBOSE
)
_USER: Final = re.compile(r"(://)[^\s/\"]{1,512}@")
_QUERY: Final = re.compile(r"(://[^\s?\"']{1,512}\?)[^\s\"']+")
_WEB_TOKEN: Final = re.compile(r"\beyJ[\w-]{5,}(?:\.[\w-]*){0,4}")
_LONG: Final = re.compile(r"[A-Za-z0-9+/_-]{32,}={0,2}")


def redacted(text: str) -> str:
    """*text* without what looks like a password, a token or a key; what the bundle says instead is :data:`REMOVED`."""
    text = _PEM_END.sub(REMOVED, _PEM.sub(REMOVED, text))
    text = _PASSWORD_LINE.sub(rf"\1 {REMOVED}", text)
    text = _CREDENTIALS.sub(rf"\1{REMOVED}", text)
    text = _HEADER.sub(rf"\1{REMOVED}", text)
    text = _OPTION.sub(rf"\1{REMOVED}", text)
    text = _NAMED.sub(rf"\1{REMOVED}", text)
    text = _USER.sub(rf"\1{REMOVED}@", text)
    text = _QUERY.sub(rf"\1{REMOVED}", text)
    text = _WEB_TOKEN.sub(REMOVED, text)
    return _LONG.sub(_unless_a_name, text)


def _unless_a_name(found: re.Match[str]) -> str:
    """A long word with capitals, small letters and digits is a key; names, paths, UIDs and hashes have no capitals."""
    word = found[0]
    is_mixed = any(map(str.isdigit, word)) and any(map(str.isupper, word)) and any(map(str.islower, word))
    return REMOVED if is_mixed else word
