"""
What the administrator of kavip permits to templates of groups: the chart value ``templates``.

The right to create DaemonSets, which the author of a template needs, is checked at admission by the API server.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from kavip.errors import BadInput

EVERYWHERE: Final = "*"
NAMESPACES_VALUE: Final = "templates.namespaces"
PRIVILEGES_VALUE: Final = "templates.privileges"
_PRIVILEGES: Final = "--template-privileges (KAVIP_TEMPLATE_PRIVILEGES)"


class Privilege(StrEnum):
    """What the pods of a template may have in addition."""

    HOST_PATH = "hostPath"
    """Volumes with paths of the host."""
    PRIVILEGED = "privileged"
    """Containers with any ``securityContext``; kavip's own stay as they are."""
    SERVICE_ACCOUNT_TOKEN = "serviceAccountToken"  # noqa: S105 - the name of a source of a volume
    """Projected volumes with a token of the group's account."""


@dataclass(frozen=True, slots=True)
class TemplatePermissions:
    """The *namespaces* whose groups may have templates, and the *privileges* of their pods."""

    namespaces: frozenset[str] = frozenset()
    privileges: frozenset[str] = frozenset()

    @classmethod
    def of(cls, namespaces: str, privileges: str) -> Self:
        """The permissions of two settings, each a comma-separated list; raises :class:`BadInput` for an unknown one."""
        first, second = (frozenset(filter(None, map(str.strip, text.split(",")))) for text in (namespaces, privileges))
        for unknown in sorted(second - frozenset(Privilege)):
            raise BadInput(_PRIVILEGES, unknown, f"want some of {', '.join(Privilege)}")
        return cls(first, second)

    def places(self, group_namespaces: Collection[str]) -> list[str]:
        """The namespaces with groups that may have templates, sorted; "" for all. *group_namespaces*: empty for all."""
        if EVERYWHERE in self.namespaces:
            return sorted(group_namespaces) or [""]
        return sorted(self.namespaces.intersection(group_namespaces) if group_namespaces else self.namespaces)

    def problem(self, namespace: str) -> str:
        """Why groups in *namespace* may have no template; "" if they may."""
        if not self.namespaces.isdisjoint((EVERYWHERE, namespace)):
            return ""
        return f"the chart value {NAMESPACES_VALUE} does not name {namespace!r}: add it there, or remove the field"


NOTHING_PERMITTED: Final = TemplatePermissions()
ALL_PERMITTED: Final = TemplatePermissions(frozenset({EVERYWHERE}), frozenset(Privilege))
"""For commands that show what an object would do, whatever the administrator permits."""
