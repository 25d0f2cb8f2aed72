"""
Validates the names of other objects, and of interfaces, that users write into a ``spec``.

Without this, only the API server would refuse such a name, in the DaemonSet that kavip writes: long after ``kubectl
apply``. The rules are those of https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ and of a
Secret's ``data``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kavip.api.refusal import Refusal
from kavip.errors import BadInput
from kavip.names import Reason

INTERFACE: Final = re.compile(r"(?!lo$)[A-Za-z0-9][A-Za-z0-9._-]{0,14}")
INTERFACE_REMEDY: Final = "want 1 to 15 letters, digits, '.', '_' or '-', beginning with a letter or digit, not lo"
NAME_REMEDY: Final = "want the name of an object: up to 253 lower-case letters, digits, '-' or '.'"

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")
_IMAGE: Final = re.compile(
    r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9][A-Za-z0-9._-]*)(:[0-9]+(?=/))?(/[a-z0-9][a-z0-9._-]*)*"
    r"(:\w[\w.-]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,128})?",
    re.ASCII,
)
_KEY: Final = re.compile(r"(?!\.\Z|\.\.)[-._a-zA-Z0-9]{1,253}")
_ANNOTATION: Final = re.compile(rf"((?=[^/]{{1,253}}/){_LABEL}(\.{_LABEL})*/)?[a-z0-9]([a-z0-9_.-]{{0,61}}[a-z0-9])?")


def is_interface(text: str) -> bool:
    """Whether *text* can be the name of an interface that holds VIPs or VRRP."""
    return INTERFACE.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether *text* can be the name of an object."""
    return _NAME.fullmatch(text) is not None


def is_image(text: str) -> bool:
    """Whether *text* can name an image: ``REGISTRY:PORT/PATH:TAG@DIGEST``, of which only a name is necessary."""
    return _IMAGE.fullmatch(text) is not None


def check_name(name: str, field: str) -> Iterator[Refusal]:
    """The refusal of *name* if it is not a valid name of an object; an empty name is not checked."""
    if name and not is_name(name):
        yield _refuse(field, name, NAME_REMEDY)


def check_key(key: str, field: str) -> Iterator[Refusal]:
    """The refusal of *key* if it is not a valid key of a Secret or ConfigMap; an empty key is not checked."""
    if key and not _KEY.fullmatch(key):
        yield _refuse(field, key, "want a key of its data: up to 253 letters, digits, '-', '_' or '.'")


def check_annotations(annotations: Mapping[str, str] | None, field: str) -> Iterator[Refusal]:
    """The refusals of invalid keys of *annotations* at *field*; upper case is valid, as for the API server."""
    for key in sorted(annotations or ()):
        if not _ANNOTATION.fullmatch(key.lower()):
            yield _refuse(f"{field}[{key}]", key, "want the key of an annotation, such as prometheus.io/scrape")


def _refuse(field: str, value: object, remedy: str) -> Refusal:
    return Refusal.of(Reason.INVALID, BadInput(field, value, remedy))
