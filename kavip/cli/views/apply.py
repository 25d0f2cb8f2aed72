"""
Manifests applied to a cluster: each object as it would be after ``kubectl apply``.

What the API server and kavip's webhook would keep of an object is kept; everything else is the manifest's.
"""

from typing import Any, Final, TypeVar

import msgspec

from kavip.admission import mutation
from kavip.api.group import KeepalivedGroup
from kavip.api.meta import Metadata
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.snapshot import KINDS, Object

T = TypeVar("T", bound=Service | KeepalivedGroup | VIPPool)

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SERVER_FIELDS: Final = (  # the API server keeps these if a manifest with the same type does not set them
    "cluster_ip",
    "cluster_ips",
    "external_traffic_policy",
    "health_check_node_port",
    "ip_families",
    "ip_family_policy",
)


def key_of(obj: Object) -> tuple[str, str]:
    """The kind and key of *obj*."""
    return KINDS[type(obj)], obj.metadata.key


def applied(new: T, old: Service | KeepalivedGroup | VIPPool | None) -> T:
    """The manifest *new* after it was applied to *old* in a cluster; *new* itself if *old* is None."""
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
    return {name: getattr(old, name) for name in _SERVER_FIELDS if not getattr(new, name)}


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
    """*old* updated by *new*, without what the last ``kubectl apply`` (*before*) set and *new* does not."""
    new = new or {}
    gone = (before or {}).keys() - new.keys()
    return {**{key: value for key, value in (old or {}).items() if key not in gone}, **new} or None


class _Manifest(msgspec.Struct):
    metadata: Metadata = Metadata()


def _last_applied(old: Metadata) -> Metadata:
    try:
        return msgspec.json.decode((old.annotations or {}).get(LAST_APPLIED, "{}"), type=_Manifest).metadata
    except (msgspec.DecodeError, RecursionError):  # any user may write the annotation
        return Metadata()
