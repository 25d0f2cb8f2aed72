"""
Files over a cluster: the objects as they would stand after ``kubectl apply``.

Pure. What the API server and kavip's webhook would keep of an object is kept, everything else is the file's.
"""

from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from kavip.admission import mutation
from kavip.api.group import KeepalivedGroup
from kavip.api.meta import Metadata
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.api.workload import Written
from kavip.snapshot import KINDS, Object

T = TypeVar("T", bound=Service | KeepalivedGroup | VIPPool)

_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SERVERS: Final = (  # what the API server fills in where a manifest of the same type leaves it out
    "cluster_ip",
    "cluster_ips",
    "external_traffic_policy",
    "health_check_node_port",
    "ip_families",
    "ip_family_policy",
)


@dataclass(frozen=True, slots=True)
class Standing:
    """
    What stands in a cluster, as far as it could be read.

    *absent*: the kinds of which nothing can be known; *hidden*: why, by kind, not all of it could be read; *notes*:
    what of that the reader must be told. *written*: what kavip made for the groups, by ``Kind ns/name``.
    """

    objects: tuple[Object, ...] = ()
    absent: frozenset[str] = frozenset()
    hidden: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    written: dict[str, Written] = field(default_factory=dict)


def key_of(obj: Object) -> tuple[str, str]:
    """The kind and key of *obj*."""
    return KINDS[type(obj)], obj.metadata.key


def laid(new: T, old: Service | KeepalivedGroup | VIPPool | None) -> T:
    """*new* of a file as it would stand after it was applied to *old* of a cluster; itself where there is none."""
    if old is None:
        return new
    metadata = _metadata(new.metadata, old.metadata)
    match new, old:
        case Service(), Service():
            spec: Any = new.spec
            if spec.type == old.spec.type:
                spec = msgspec.structs.replace(spec, **_filled(spec, old.spec))
        case KeepalivedGroup(), KeepalivedGroup():
            kept = mutation.defaults_on_update(new.spec, old.spec)
            data = {**msgspec.to_builtins(new.spec), **kept}
            present = {name: value for name, value in data.items() if value is not msgspec.UNSET}
            spec = msgspec.convert(present, type(new.spec))
        case _:
            spec = new.spec
    return msgspec.structs.replace(new, metadata=metadata, spec=spec, status=old.status)


def _filled(new: msgspec.Struct, old: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(old, name) for name in _SERVERS if not getattr(new, name)}


def _metadata(new: Metadata, old: Metadata) -> Metadata:
    before = _last_applied(old)
    return msgspec.structs.replace(
        old,
        labels=_merged(new.labels, old.labels, before.labels),
        annotations=_merged(new.annotations, old.annotations, before.annotations),
    )


def _merged(
    new: dict[str, str] | None, old: dict[str, str] | None, before: dict[str, str] | None
) -> dict[str, str] | None:
    """*new* over *old*, without what the last ``kubectl apply`` (*before*) gave and this one does not."""
    new = new or {}
    gone = (before or {}).keys() - new.keys()
    return {**{key: value for key, value in (old or {}).items() if key not in gone}, **new} or None


class _Manifest(msgspec.Struct):
    metadata: Metadata = Metadata()


def _last_applied(old: Metadata) -> Metadata:
    try:
        return msgspec.json.decode((old.annotations or {}).get(_APPLIED, "{}"), type=_Manifest).metadata
    except (msgspec.DecodeError, RecursionError):  # anybody may write an annotation
        return Metadata()
