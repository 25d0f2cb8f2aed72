"""
What a plain scalar of YAML is for Kubernetes: text, a number, a boolean or null.

kubectl and Helm read YAML with sigs.k8s.io/yaml, whose numbers are those of Go's strconv. PyYAML takes some of its
numbers and booleans for text (``1e3``, ``08``, ``0X1F``, ``y``), and some of its texts for dates or for numbers of base
60. A number that does not fit into 64 bits is text, or a float.
"""

import re
import struct
from decimal import Decimal
from math import isfinite
from typing import Final

import yaml

PREFIX: Final = "tag:yaml.org,2002:"
STR, NULL, BOOL, INT, FLOAT = (f"{PREFIX}{each}" for each in ("str", "null", "bool", "int", "float"))

_TRUE: Final = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE: Final = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_NULLS: Final = frozenset(("", "~", "null", "Null", "NULL"))
_INT: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ENDLESS: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_SIGNED_BINARY: Final = re.compile(r"0b[-+][01]+")
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
_INTEGERS: Final = 1e21  # below it Go writes a whole float without an exponent
_DIGITS: Final = 9  # they tell each float of 32 bits from all others
_EXPONENTS: Final = range(-4, 6)  # within them Go writes none
_LONGEST: Final = 1000  # digits of an integer that is read; longer ones are floats, or text
_FIRSTS: Final = frozenset("-+.0123456789")


def number_of(text: str) -> int | float | None:
    """The number that the plain scalar *text* is, as it stands in JSON; None: it is none."""
    found = _number(text)
    is_whole = isinstance(found, float) and found.is_integer() and abs(found) < _INTEGERS
    return int(found) if found is not None and is_whole else found


def key_of(text: str) -> str:
    """
    The key that the number *text* is in JSON.

    A float has the fewest digits that tell it from other floats of 32 bits, as sigs.k8s.io/yaml writes it.
    """
    found = float(text.lower().replace(".inf", "inf").replace(".nan", "nan")) if is_endless(text) else _number(text)
    if not isinstance(found, float):
        return str(found)
    (single,) = struct.unpack("f", _packed(found))
    if not isfinite(single):
        return str(single).replace("inf", ".inf").replace("nan", ".nan")
    forms = (f"{single:.{digits}e}" for digits in range(_DIGITS))
    shortest = next(each for each in forms if _packed(float(each)) == _packed(single))
    return f"{Decimal(shortest):f}" if int(shortest.partition("e")[2]) in _EXPONENTS else shortest


def _packed(value: float) -> bytes:
    """*value* as a float of 32 bits."""
    return struct.pack("f", value)


def _number(text: str) -> int | float | None:
    """The number that the plain scalar *text* is; a float stays one."""
    if not text or text[0] not in _FIRSTS:
        return None
    plain = text if text[0] == "." else text.replace("_", "")
    if len(plain) <= _LONGEST and (_INT.fullmatch(plain) or _SIGNED_BINARY.fullmatch(plain)):
        value = _integer(plain)
        if _SMALLEST <= value <= _LARGEST:
            return value
    if not _FLOAT.fullmatch(plain) or not isfinite(found := float(plain)):
        return None
    return found


def _integer(plain: str) -> int:
    if plain.startswith("0b"):
        return int(plain[2:], 2)
    digits = plain.lstrip("-+")
    is_octal = len(digits) > 1 and digits[0] == "0" and digits.isdecimal()  # of YAML 1.1
    return int(plain, 8 if is_octal else 0)


def is_endless(text: str) -> bool:
    """Whether *text* is infinity, or not a number: YAML has these, and JSON does not."""
    return _ENDLESS.fullmatch(text) is not None


def bool_of(text: str) -> bool:
    """The boolean *text*."""
    return text in _TRUE


def tag_of(text: str) -> str:
    """The tag of the plain scalar *text*."""
    if text in _TRUE or text in _FALSE:
        return BOOL
    if text in _NULLS:
        return NULL
    number = number_of(text)
    if number is None:
        return FLOAT if is_endless(text) else STR
    return INT if isinstance(number, int) else FLOAT


class Resolver(yaml.resolver.Resolver):
    """Finds tags as :func:`tag_of` does: a base of loaders."""

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: tuple[bool, bool] | bool) -> str:
        """The tag of a node of *kind* without one; *implicit*: whether it is plain."""
        if kind is yaml.ScalarNode and isinstance(implicit, tuple) and implicit[0] and value not in ("<<", "="):
            return tag_of(value or "")
        return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]  # it has no types
