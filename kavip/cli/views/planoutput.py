"""
The output of ``kavip check`` and ``kavip plan``: lines and tables for people, JSON for programs.
"""

import textwrap
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from math import floor
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kavip.admission.verdict import describe, message_of
from kavip.api import conditions
from kavip.cli.views.explain import why_unmanaged
from kavip.cli.views.simulate import ObjectReview, Simulation
from kavip.cli.views.table import table
from kavip.ipam.explain import format_count
from kavip.ipam.ranges import FAMILY_NAMES
from kavip.names import CONFIG_KEY, CONFIG_MAP, KEEPALIVED_GROUP, SERVICE, ConditionType, Reason
from kavip.snapshot import Snapshot
from kavip.vrrp.compact import is_compact
from kavip.vrrp.config import LARGE, Config, Limit, LimitKind, Target
from kavip.vrrp.packed import is_packed, unpacked

_WIDTH: Final = 118

Places = Mapping[tuple[str, str], str]
"""Where each object is, such as ``web.yaml:3``, by kind and key."""

_NO_PLACES: Final[Places] = MappingProxyType({})


# --- refusals and warnings --------------------------------------------------------------------------------------------
def refusals(simulated: Simulation, places: Places = _NO_PLACES) -> list[str]:
    """Each refusal as one line, which begins with the place of the object if that is known."""
    return [
        f"{_subject(each, places)}: refused: {describe(one)}"
        for each in simulated.refused
        for one in each.verdict.refusals
    ]


def warnings(simulated: Simulation, places: Places = _NO_PLACES) -> list[str]:
    """Each warning as one line, after what was not checked."""
    found = [
        f"{_subject(each, places)}: warning: {text}" for each in simulated.reviewed for text in each.verdict.warnings
    ]
    templates = (*template_problems(simulated), *untried_templates(simulated))
    return [*(f"warning: {note}" for note in simulated.notes), *found, *templates]


def exclusions(simulated: Simulation) -> list[str]:
    """Each group whose configuration has no room for all of its Services, as one line."""
    found = (each.message for services in simulated.excluded.values() for each in services.values())
    return list(dict.fromkeys(found))


def _subject(reviewed: ObjectReview, places: Places) -> str:
    key = f"{reviewed.namespace}/{reviewed.name}" if reviewed.namespace else reviewed.name
    place = places.get((reviewed.kind, key))
    return f"{place}: {reviewed.kind} {key}" if place else f"{reviewed.kind} {key}"


def template_problems(simulated: Simulation, group: str = "") -> list[str]:
    """Each template of keepalived.conf that cannot be used, as one line; *group*: of this one only."""
    found = sorted(simulated.template_problems.items())
    return [f"{KEEPALIVED_GROUP} {key}: warning: {text}" for key, text in found if group in ("", key)]


def untried_templates(simulated: Simulation, group: str = "") -> list[str]:
    """Each template that could not be tried on an instance, as one line: the part for instances may have faults."""
    text = "the files have no VIP of this group, so its template was tried without any instance; add a Service or VIP"
    return [
        f"{KEEPALIVED_GROUP} {key}: warning: spec.configTemplateRef: {text}"
        for key, found in sorted(simulated.configurations.items())
        if group in ("", key) and key not in simulated.template_problems
        if simulated.snapshot.groups[key].spec.config_template_ref and "\nvrrp_instance " not in found
    ]


# --- text -------------------------------------------------------------------------------------------------------------
def text(simulated: Simulation, *, columns: int = 0) -> str:
    """
    The address that each Service would get, the usage of the pools then, and the objects that would be made.

    Large groups come with the part of the nearest limit that they need. For a terminal with *columns*; 0: for none.
    """
    head = ("SERVICE", "GROUP", "POOL", "ADDRESSES", "REASON", "MESSAGE")
    rows = list(_service_rows(simulated))
    lines = table(head, rows, columns=columns)
    if pools := list(_pool_rows(simulated.snapshot)):
        lines += ["", *table(("POOL", "PRIORITY", "IPV4 ASSIGNED", "IPV6 ASSIGNED"), pools)]
    if large := list(_large_groups(simulated)):
        lines += ["", *table(("GROUP", "IN ITS CONFIGMAP", "OF THE NEAREST LIMIT", "IN FULL", "NOTATION"), large)]
    if simulated.objects:
        kinds = ((each["kind"], each["metadata"]) for each in simulated.objects)
        made = ", ".join(sorted(f"{kind} {metadata['namespace']}/{metadata['name']}" for kind, metadata in kinds))
        lines += ["", *textwrap.wrap(f"Objects (-o json shows them): {made}", _WIDTH, subsequent_indent="  ")]
    if counts := _unserved(rows):
        lines += ["", counts]
    return "\n".join(lines)


def _unserved(rows: Collection[tuple[str, ...]]) -> str:
    """How many of the Services with *rows* are refused or excluded, such as ``300 Services: 45 refused``; "": none."""
    reasons = Counter(row[4] for row in rows)
    shown = ", ".join(f"{reasons[word]:,} {word}" for word in ("refused", "excluded") if reasons[word])
    return f"{len(rows):,} {'Service' if len(rows) == 1 else 'Services'}: {shown}" if shown else ""


def _service_rows(simulated: Simulation) -> Iterator[tuple[str, ...]]:
    """A row for each Service that requests an address or has external IPs, and for each that is refused."""
    snapshot = simulated.snapshot
    excluded = {key: why for services in simulated.excluded.values() for key, why in services.items()}
    refused = {f"{each.namespace}/{each.name}": each for each in simulated.refused if each.kind == SERVICE}
    for key in sorted({*simulated.services, *refused}):
        why = "; ".join(map(message_of, refused[key].verdict.refusals)) if key in refused else ""
        if key not in snapshot.services:
            yield key, "-", "-", "-", "refused", why
            continue
        service, group = snapshot.services[key], snapshot.group_of(snapshot.services[key])
        condition = conditions.find(service.status.conditions, ConditionType.ADDRESS_ASSIGNED)
        addresses = service.ingress_addresses if service.is_load_balancer else service.external_addresses
        pools = dict.fromkeys(pool.name for each in addresses if (pool := snapshot.parsed_pools.pool_of(each)))
        cells = ",".join(pools) or "-", ",".join(map(str, addresses)) or "-"
        if key in refused:  # it exists in a cluster, and keeps what it has
            yield key, group or "-", *cells, "refused", why
        elif group is None and service.is_load_balancer:
            yield key, "-", *cells, "not managed", why_unmanaged(snapshot, service)
        elif key in excluded:
            yield key, group or "-", *cells, "excluded", excluded[key].message
        elif condition is not None:
            is_complete = len(addresses) == len(service.spec.ip_families or addresses)
            message = "" if condition.reason == Reason.ASSIGNED and is_complete else condition.message
            yield key, group or "-", *cells, condition.reason, message
        elif group is not None and addresses:
            yield key, group, *cells, "ExternalIPs", ""


def _pool_rows(snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    for pool in snapshot.parsed_pools.in_force:
        usage = snapshot.ledger.usage(pool.name)
        cells = (
            f"{format_count(usage[family].assigned)} of {format_count(usage[family].total)}" if family in usage else "-"
            for family in FAMILY_NAMES
        )
        yield pool.name, str(pool.priority), *cells
    for name, problem in snapshot.parsed_pools.problems.items():
        yield name, "-", "not in force", problem.message


def _large_groups(simulated: Simulation) -> Iterator[tuple[str, ...]]:
    """A row for each group whose configuration is large: how near it is to a limit, and its notation."""
    for key, content in sorted(_contents(simulated).items()):
        full = len(simulated.configurations[key])
        if full <= LARGE:
            continue
        group = simulated.snapshot.groups[key]
        if content.notation:
            why = f"{content.notation}, if every agent reads it"
        elif group.spec.agent_image:
            why = "in full: spec.agentImage may not read a shorter notation"
        else:
            why = "in full: few of its lines are for nodes"
        yield key, f"{content.size:,} bytes", _part(content.nearest), f"{full:,} bytes", why


def _part(limit: Limit) -> str:
    """The part of *limit* that is used, rounded down: 100% is full."""
    units = {LimitKind.UNPACKED: "bytes unpacked", LimitKind.IN_FULL: "bytes in full"}
    what = f"{limit.most:,} {units[limit.kind]}" if limit.kind in units else "a ConfigMap"
    return f"{floor(100 * limit.part)}% of {what}"


class _Content(NamedTuple):
    """The *size* of a group's ConfigMap, the limit *nearest* to it, and the *notation* of its text; "": in full."""

    size: int
    nearest: Limit
    notation: str


def _contents(simulated: Simulation) -> Mapping[str, _Content]:
    """What the ConfigMaps of the groups hold, by group."""
    found = {}
    for each in simulated.objects:
        if each["kind"] == CONFIG_MAP:
            size = sum(map(len, each["data"].values()))
            metadata, text = each["metadata"], each["data"][CONFIG_KEY]
            key = f"{metadata['namespace']}/{metadata['name']}"
            content = unpacked(text)
            target = Target(agent_bytes=size - len(text))
            held = Config((simulated.configurations[key],), "", content, target, is_packed(text))
            used = {"compact": is_compact(content), "packed": held.is_packed}
            notation = " and ".join(name for name, is_used in used.items() if is_used)
            found[key] = _Content(size, held.nearest, notation)
    return found


# --- JSON -------------------------------------------------------------------------------------------------------------
def check_data(simulated: Simulation) -> dict[str, Any]:
    """The object that ``kavip check -o json`` prints, sorted."""
    return {"refused": [_refused(each) for each in simulated.refused]}


def plan_data(simulated: Simulation) -> dict[str, Any]:
    """The object that ``kavip plan -o json`` prints, sorted."""
    snapshot, contents = simulated.snapshot, _contents(simulated)
    managed = (key for key in simulated.services if snapshot.group_of(snapshot.services[key]) is not None)
    return {
        **check_data(simulated),
        "services": [_service(snapshot, key) for key in managed],
        "groups": [
            {
                "namespace": group.metadata.namespace,
                "name": group.metadata.name,
                "routerIDs": dict(sorted((group.status.router_ids or {}).items())),
                "keepalivedConf": simulated.configurations.get(key, ""),
                "configMapBytes": contents[key].size if key in contents else 0,
                "nearestLimit": _nearest_limit(contents[key].nearest) if key in contents else None,
                "excluded": sorted(simulated.excluded.get(key, ())),
            }
            for key, group in sorted(snapshot.groups.items())
        ],
        "objects": list(simulated.objects),
    }


def _nearest_limit(limit: Limit) -> dict[str, Any]:
    return {"kind": limit.kind, "usedBytes": limit.used, "mostBytes": limit.most}


def _refused(each: ObjectReview) -> dict[str, Any]:
    found = sorted(each.verdict.refusals, key=lambda one: (one.field, one.reason, one.message))
    causes = [{"field": one.field, "reason": one.reason, "message": message_of(one)} for one in found]
    return {
        "kind": each.kind,
        "namespace": each.namespace,
        "name": each.name,
        "causes": causes,
        "warnings": list(each.verdict.warnings),
    }


def _service(snapshot: Snapshot, key: str) -> dict[str, Any]:
    service = snapshot.services[key]
    pools = {pool.name for address in service.ingress_addresses if (pool := snapshot.parsed_pools.pool_of(address))}
    return {
        "namespace": service.metadata.namespace,
        "name": service.metadata.name,
        "group": snapshot.group_of(service) or "",
        "pool": ",".join(sorted(pools)),
        "addresses": [str(address) for address in service.ingress_addresses],
        "conditions": [
            {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            for each in sorted(service.status.conditions or (), key=lambda one: one.type)
        ],
    }
