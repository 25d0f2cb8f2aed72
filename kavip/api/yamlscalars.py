"""
What a plain scalar of YAML is for Kubernetes: text, a number, a boolean or null.

kubectl and Helm read YAML with sigs.k8s.io/yaml. PyYAML takes some of its numbers and booleans for text (``1e3``,
``08``, ``0X1F``, ``y``), and some of its texts for dates or for numbers of base 60.
"""

import re
from typing import Any, Final

import yaml

PREFIX: Final = "tag:yaml.org,2002:"
STR, NULL, BOOL, INT, FLOAT = (f"{PREFIX}{each}" for each in ("str", "null", "bool", "int", "float"))

_PATTERNS: Final = (
    (BOOL, r"y|Y|yes|Yes|YES|true|True|TRUE|on|On|ON|n|N|no|No|NO|false|False|FALSE|off|Off|OFF", "yYtToOnNfF"),
    (
        INT,
        r"[-+]?(?:0[0-7_]*|[1-9][0-9_]*|0[xX]_*[0-9a-fA-F][0-9a-fA-F_]*|0[bB]_*[01][01_]*|0[oO]_*[0-7][0-7_]*)",
        "-+0123456789",
    ),
    (
        FLOAT,
        r"[-+]?(?:(?:\.[0-9][0-9_]*|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9][0-9_]*)?|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
)
_OTHERS: Final = frozenset(f"{PREFIX}{each}" for each in ("null", "merge", "value"))  # PyYAML reads them alike


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    usual = yaml.SafeLoader.yaml_implicit_resolvers
    found = {first: [each for each in some if each[0] in _OTHERS] for first, some in usual.items()}
    for tag, pattern, firsts in _PATTERNS:
        for first in firsts:
            found.setdefault(first, []).append((tag, re.compile(rf"(?:{pattern})\Z")))
    return found


RESOLVERS: Final = _resolvers()
"""By the first letter, in PyYAML's form: for loaders, and for dumpers, which quote a text that is none."""


class _Resolver(yaml.resolver.BaseResolver):
    yaml_implicit_resolvers = RESOLVERS


_RESOLVER: Final[Any] = _Resolver()


def tag_of(value: str) -> str:
    """The tag of the plain scalar *value*."""
    return str(_RESOLVER.resolve(yaml.ScalarNode, value, (True, False)))


def int_of(value: str) -> int:
    """The integer *value*; raises ValueError for none, and for one of thousands of digits."""
    plain = value.replace("_", "")
    sign, digits = (plain[0], plain[1:]) if plain[:1] in ("-", "+") else ("", plain)
    is_octal = len(digits) > 1 and digits[0] == "0" and digits.isdecimal()  # of YAML 1.1
    return int(f"{sign}{digits}", 8 if is_octal else 0)


def bool_of(value: str) -> bool:
    """The boolean *value*."""
    return value.lower() in ("y", "yes", "true", "on")
