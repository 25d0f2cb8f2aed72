"""Describes events of a history briefly, for the report of a finding."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict

from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.snapshot import KINDS, Object


def obj(value: Object) -> str:
    """Describe *value* by the fields that matter to IPAM."""
    match value:
        case Service():
            return _service(value)
        case VIPPool():
            fields = {name: value for name, value in asdict(value.spec).items() if value not in (None, [])}
            return f"pool {value.name} {fields}"
        case KeepalivedGroup():
            return f"group default={value.is_default} VIPs={' '.join(map(str, value.virtual_ips))}"
    meta = value.metadata
    return f"{KINDS[type(value)]} {meta.name} {meta.labels or ''} {getattr(value, 'status', '')}"


def patch(key: str, body: Mapping[str, Any]) -> str:
    """Describe a status patch by the fields that matter to IPAM."""
    status = body["status"]
    conditions = [
        f"{each['type'].rpartition('/')[2]}={each.get('reason', 'gone')}" for each in status.get("conditions") or ()
    ]
    other = {name: value for name, value in status.items() if name != "conditions"}
    return f"{key} since v{body['metadata']['resourceVersion']}: {other} {' '.join(conditions)}"


def _service(service: Service) -> str:
    spec, meta = service.spec, service.metadata
    parts = [
        service.key,
        f"v{meta.resource_version}",
        meta.creation_timestamp or "",
        spec.type,
        "+".join(spec.ip_families or ()),
        spec.ip_family_policy or "",
        *(f"{name.rpartition('/')[2]}={value!r}" for name, value in sorted((meta.annotations or {}).items())),
        *(f"{name}={value}" for name, value in sorted((meta.labels or {}).items())),
        f"port={spec.ports[0].port if spec.ports else ''}",
        f"{spec.external_traffic_policy} {spec.selector}",
        f"class={spec.load_balancer_class or ''} ip={spec.load_balancer_ip} ext={spec.external_ips or ''}",
        f"status={' '.join(map(str, service.ingress_addresses))}",
        *(f"{each.type.rpartition('/')[2]}={each.reason}" for each in service.status.conditions or ()),
        "DELETING" if meta.deletion_timestamp else "",
    ]
    return " ".join(filter(None, parts))
