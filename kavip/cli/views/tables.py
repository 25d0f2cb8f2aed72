"""
What ``kavip plan`` prints for people: a row for each Service, a row for each pool.
"""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kavip.admission.text import one_line
from kavip.admission.verdict import message_of
from kavip.api import conditions
from kavip.cli.views.simulate import Planned
from kavip.cli.views.unmanaged import why_unmanaged
from kavip.ipam.explain import count
from kavip.ipam.ranges import FAMILY_NAMES
from kavip.names import SERVICE, Reason
from kavip.names import Condition as ConditionType
from kavip.snapshot import Snapshot

_WIDTH: Final = 118


def text(planned: Planned) -> str:
    """Which address each Service would get, how full the pools would be then, and what else would come of the files."""
    lines = table(("SERVICE", "GROUP", "POOL", "ADDRESSES", "REASON", "MESSAGE"), _planned(planned))
    if pools := list(_filled(planned.snapshot)):
        lines += ["", *table(("POOL", "PRIORITY", "IPV4 ASSIGNED", "IPV6 ASSIGNED"), pools)]
    if planned.objects:
        kinds = ((each["kind"], each["metadata"]) for each in planned.objects)
        made = ", ".join(sorted(f"{kind} {metadata['namespace']}/{metadata['name']}" for kind, metadata in kinds))
        lines += ["", *textwrap.wrap(f"Objects (-o json shows them): {made}", _WIDTH, subsequent_indent="  ")]
    return "\n".join(lines)


def _planned(planned: Planned) -> Iterator[tuple[str, ...]]:
    """A row for each Service that asks for an address or brings its own, and for each that would not come in."""
    snapshot = planned.snapshot
    refused = {f"{each.namespace}/{each.name}": each for each in planned.refused if each.kind == SERVICE}
    for key in sorted({*planned.services, *refused}):
        if key not in snapshot.services:
            found = refused[key].verdict.refusals
            yield key, "-", "-", "-", "refused", "; ".join(message_of(each) for each in found)
            continue
        service, group = snapshot.services[key], snapshot.group_of(snapshot.services[key])
        told = conditions.find(service.status.conditions, ConditionType.ADDRESS_ASSIGNED)
        held = service.ingress_addresses if service.is_load_balancer else service.external_addresses
        pools = dict.fromkeys(pool.name for each in held if (pool := snapshot.parsed_pools.pool_of(each)))
        has = ",".join(pools) or "-", ",".join(map(str, held)) or "-"
        if group is None and service.is_load_balancer:
            yield key, "-", *has, "not managed", why_unmanaged(snapshot, service)
        elif told is not None:
            is_plain = told.reason == Reason.ASSIGNED and len(held) == len(service.spec.ip_families or held)
            yield key, group or "-", *has, told.reason, "" if is_plain else told.message
        elif group is not None and held:
            yield key, group, *has, "ExternalIPs", ""


def _filled(snapshot: Snapshot) -> Iterator[tuple[str, ...]]:
    for pool in snapshot.parsed_pools.in_force:
        usage = snapshot.ledger.usage(pool.name)
        cells = (
            f"{count(usage[family].assigned)} of {count(usage[family].total)}" if family in usage else "-"
            for family in FAMILY_NAMES
        )
        yield pool.name, str(pool.priority), *cells
    for name, problem in snapshot.parsed_pools.problems.items():
        yield name, "-", "not in force", problem.message


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """*rows* under *head*, aligned; the last column is free. Whoever wrote what is in a cell has this cell only."""
    everything = [tuple(head), *(tuple(map(one_line, row)) for row in rows)]
    widths = [max(len(row[column]) for row in everything) for column in range(len(head) - 1)]
    return [
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in everything
    ]
