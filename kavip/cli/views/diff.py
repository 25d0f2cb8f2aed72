"""
``kavip plan --diff``: what the files would change in a cluster.

Pure. Of a DaemonSet only the fields count that kavip itself applied, as the API server remembers them; what it or
others filled in is no difference. A password that an old configuration holds in clear text is never shown.
"""

import difflib
import gzip
import json
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import yaml

from kavip import names
from kavip.admission.text import printable
from kavip.api.address import Address
from kavip.api.group import KeepalivedGroup
from kavip.api.workload import ConfigMap, Written
from kavip.cli.sources.overlay import Standing
from kavip.cli.views.simulate import Planned
from kavip.cli.views.switchover import Together, settled, together
from kavip.reconcile.plan import ReconcileOptions
from kavip.snapshot import Snapshot

_PASSWORD: Final = re.compile(r"(?<=\bauth_pass)([ \t]+)[^\n]*")
_SUFFIXES: Final = {
    suffix: Decimal(1000) ** power for power, suffix in zip(range(-3, 7), "num kMGTPE", strict=True)
} | {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
_AMOUNTS: Final = ("limits", "requests")
_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+)([a-zA-Z]{0,2})")


@dataclass(frozen=True, slots=True)
class Change:
    """One value of *subject* (``Kind ns/name``) that would be another: *field*, *before* and *after*; "" is none."""

    subject: str
    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Drift:
    """
    Everything that would change, sorted: single values, and texts as unified diffs by ``Kind ns/name`` and key.

    *together*: what of it all nodes would change at one instant. *waits*: what waits for that already.
    """

    changes: tuple[Change, ...]
    diffs: tuple[tuple[str, str], ...]
    together: tuple[Together, ...] = ()
    waits: tuple[Together, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything would."""
        return bool(self.changes or self.diffs)


def drift_of(planned: Planned, standing: Standing) -> Drift:
    """What would change in the cluster *standing* if the files of *planned* were applied."""
    before = Snapshot.from_objects(standing.objects)
    changes = sorted(
        [*_addresses(before, planned.snapshot), *_router_ids(before, planned.snapshot)],
        key=lambda change: change.subject,
    )
    pairs = [
        (body, standing.written.get(f"{body['kind']} {body['metadata']['namespace']}/{body['metadata']['name']}"))
        for body in planned.objects
    ]
    diffs = {what: text for body, found in pairs for what, text in _compared(body, found, planned.snapshot)}
    common = [each for body, found in pairs for each in _together(body, found, planned.snapshot)]
    return Drift(
        tuple(changes),
        tuple(sorted(diffs.items())),
        together=tuple(each for each in common if not each.waits),
        waits=tuple(each for each in common if each.waits),
    )


def text(drift: Drift) -> str:
    """*drift* for people, and for ``patch``'s readers."""
    lines = [f"{each.subject}: {each.field}: {_none(each.before)} -> {_none(each.after)}" for each in drift.changes]
    lines += map(str, drift.together)
    return "\n".join(map(printable, [*lines, *(line for _, each in drift.diffs for line in each.split("\n"))]))


def data(drift: Drift) -> dict[str, Any]:
    """*drift* for programs."""
    return {
        "changes": [
            {"subject": each.subject, "field": each.field, "before": each.before, "after": each.after}
            for each in drift.changes
        ],
        "diffs": [{"subject": subject, "diff": diff} for subject, diff in drift.diffs],
        "together": [{"group": each.group, "what": each.what} for each in drift.together],
        "waits": [{"group": each.group, "what": each.what} for each in drift.waits],
    }


def settings_of(standing: Standing, *, ipam: str) -> ReconcileOptions:
    """The settings of the kavip that runs there, as far as its DaemonSets tell them; the defaults where none is."""
    own_images = {each.key for each in _groups(standing) if each.spec.agent_image}
    for what, daemonset in sorted(standing.written.items()):
        kind, key = what.split(" ", 1)
        agents = [each for each in _containers(daemonset) if each.get("name") == names.AGENT_CONTAINER]
        if kind != names.DAEMON_SET or key in own_images or not agents:
            continue
        told = {each["name"]: each.get("value", "") for each in agents[0].get("env", ())}
        return ReconcileOptions(
            image=agents[0]["image"],
            ipam=ipam,
            agent_allowed_cidrs=told.get("KAVIP_AGENT_ALLOWED_CIDRS", ""),
            agent_metrics=told.get("KAVIP_AGENT_METRICS", names.Exporter.GEN2BRAIN.value),
        )
    return ReconcileOptions(ipam=ipam)


def _groups(standing: Standing) -> list[Any]:
    return Snapshot.from_objects(standing.objects).every_group


def _containers(daemonset: Written) -> list[dict[str, Any]]:
    pod = ((daemonset.spec or {}).get("template") or {}).get("spec") or {}
    found: list[dict[str, Any]] = pod.get("containers") or []
    return found


def _none(value: str) -> str:
    return value or "none"


# --- values -----------------------------------------------------------------------------------------------------------
def _addresses(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    for key, service in sorted(after.services.items()):
        old = before.services.get(key)
        had, has = (_shown(each.ingress_addresses) if each else "" for each in (old, service))
        if had != has:
            yield Change(f"{names.SERVICE} {key}", "status.loadBalancer.ingress", had, has)


def _shown(addresses: tuple[Address, ...]) -> str:
    return ",".join(map(str, addresses))


def _router_ids(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    for key, group in sorted(after.groups.items()):
        old = before.groups.get(key)
        had = (old.status.router_ids or {}) if old else {}
        has = group.status.router_ids or {}
        for name in sorted(had.keys() | has.keys()):
            if had.get(name) != has.get(name):
                numbers = (str(each) if each else "" for each in (had.get(name), has.get(name)))
                yield Change(f"{names.KEEPALIVED_GROUP} {key}", f"status.routerIDs[{name}]", *numbers)


# --- texts ------------------------------------------------------------------------------------------------------------
def _group_of(body: Mapping[str, Any], snapshot: Snapshot) -> KeepalivedGroup | None:
    return snapshot.groups.get(f"{body['metadata']['namespace']}/{body['metadata']['name']}")


def _together(body: Mapping[str, Any], found: Written | None, snapshot: Snapshot) -> tuple[Together, ...]:
    group = _group_of(body, snapshot)
    if body["kind"] != names.CONFIG_MAP or found is None or group is None:
        return ()
    wanted = ConfigMap(data=body["data"], binary_data=body.get("binaryData"))
    return together(group, ConfigMap(data=found.data, binary_data=found.binary_data), wanted)


def _compared(body: Mapping[str, Any], found: Written | None, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    kind = body["kind"]
    subject = f"{kind} {body['metadata']['namespace']}/{body['metadata']['name']}"
    if kind == names.CONFIG_MAP:
        old, new = _standing(found, _group_of(body, snapshot)), _texts(body["data"], body.get("binaryData"))
        for name in sorted(old.keys() | new.keys()):
            yield from _unified(f"{subject} {name}", old.get(name, ""), new.get(name, ""))
    elif kind == names.DAEMON_SET:
        yield from _unified(subject, _yaml(_owned_by_kavip(found)) if found else "", _yaml(_settled(_bare(body))))


def _standing(found: Written | None, group: KeepalivedGroup | None) -> dict[str, str]:
    """What a ConfigMap of the cluster says; what waits in it for all nodes to change together counts as made."""
    if found is None:
        return {}
    texts = settled(group, ConfigMap(data=found.data, binary_data=found.binary_data)) if group else found.data
    is_made = bool(group) and texts != (found.data or {})
    binary = {
        name: each for name, each in (found.binary_data or {}).items() if not (is_made and name == names.NEXT_KEY)
    }
    return _texts(texts, binary)


def _texts(data: Mapping[str, str] | None, binary: Mapping[str, str] | None) -> dict[str, str]:
    """What a ConfigMap says, by key, without passwords; unreadable bytes as they stand."""
    found = dict(data or {})
    for name, encoded in (binary or {}).items():
        try:
            found[name.removesuffix(".gz")] = gzip.decompress(b64decode(encoded)).decode()
        except (ValueError, OSError, EOFError):
            found[name] = encoded
    return {name: _PASSWORD.sub(r"\1(hidden)", value) for name, value in found.items()}


def _unified(subject: str, old: str, new: str) -> Iterator[tuple[str, str]]:
    if old != new:
        was, would = f"cluster: {subject}", f"files: {subject}"
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), was, would, lineterm="")
        yield subject, "\n".join(lines)


def _yaml(value: object) -> str:
    written: str = yaml.safe_dump(value, sort_keys=True, default_flow_style=False, width=1000)
    return written


def _bare(body: Mapping[str, Any]) -> dict[str, Any]:
    """*body* without what names it: that is never another."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in ("name", "namespace")}
    return {"metadata": metadata, "spec": body["spec"]}


def _owned_by_kavip(found: Written) -> Any:
    """What kavip applied of *found*; nothing where it was not kavip."""
    fields = next(
        (
            each.fields
            for each in found.metadata.managed_fields or ()
            if (each.manager, each.operation, each.subresource) == (names.FIELD_MANAGER, "Apply", "")
        ),
        None,
    )
    return _settled(_owned(msgspec.to_builtins(found), fields)) if fields else {}


def _owned(value: Any, fields: Mapping[str, Any]) -> Any:
    """The part of *value* that *fields* (``fieldsV1``) name."""
    inner = {name: each for name, each in fields.items() if name != "."}
    if not inner:
        return value
    if isinstance(value, Mapping):
        found = ((name[2:], each) for name, each in sorted(inner.items()) if name.startswith("f:"))
        return {name: _owned(value[name], each) for name, each in found if name in value}
    if isinstance(value, list):
        keyed = [(json.loads(name[2:]), each) for name, each in inner.items() if name.startswith("k:")]
        return [
            _owned(item, each)
            for item in value
            for keys, each in keyed
            if isinstance(item, Mapping) and keys.items() <= item.items()
        ]
    return value


def _settled(value: Any) -> Any:
    """*value* with amounts of resources in one spelling: the API server writes 0.5 as 500m."""
    match value:
        case dict():
            return {name: _amounts(each) if name in _AMOUNTS else _settled(each) for name, each in value.items()}
        case list():
            return [_settled(each) for each in value]
    return value


def _amounts(value: Any) -> Any:
    return {name: _amount(str(each)) for name, each in value.items()} if isinstance(value, dict) else value


def _amount(text: str) -> str:
    match = _QUANTITY.fullmatch(text)
    factor = _SUFFIXES.get(match[2] or " ") if match else None
    if match is None or factor is None:
        return text
    try:
        return str((Decimal(match[1]) * factor).normalize())
    except InvalidOperation:
        return text
