"""
Groups and pools.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from shlex import quote
from typing import Final

from kavip import names
from kavip.api import conditions
from kavip.cli.views.doctor.finding import Finding
from kavip.cli.views.doctor.inspection import Inspection
from kavip.ipam.pool import Pool
from kavip.ipam.ranges import Range, find, subtract
from kavip.names import ConditionType, Reason
from kavip.reconcile.group.inactive import is_ignored
from kavip.snapshot import Snapshot

_MOST: Final = 20  # addresses of nodes that findings about a pool name


def default_groups(found: Inspection) -> Iterator[Finding]:
    """Check that at most one group that kavip serves is the default one."""
    every = Snapshot.from_objects(found.objects).every_group
    labelled = [each for each in every if each.is_default and not is_ignored(each)]
    default = min(labelled, key=lambda each: each.metadata.age_key, default=None)
    for each in labelled:
        if default is not None and each is not default:
            yield Finding(
                f"KeepalivedGroup {each.key} is labelled as default group, and so is {default.key}, "
                "which is older and counts",
                f"kubectl label keepalivedgroup {quote(each.metadata.name)} "
                f"--namespace={quote(each.metadata.namespace)} {names.DEFAULT_GROUP_LABEL}-",
            )


def router_ids(found: Inspection) -> Iterator[Finding]:
    """Check that no other router uses a VRID of a group, as the controller has observed."""
    for each in Snapshot.from_objects(found.objects).every_group:
        ready = conditions.find(each.status.conditions, ConditionType.READY)
        if ready is not None and ready.reason == Reason.VRID_COLLISION:
            yield Finding(
                f"KeepalivedGroup {each.key}: {ready.message}",
                f"kubectl edit keepalivedgroup {quote(each.metadata.name)} "
                f"--namespace={quote(each.metadata.namespace)}  # add the VRID to spec.blacklistRouterIDs",
            )


def pools(found: Inspection) -> Iterator[Finding]:
    """Check that no pool has addresses that the cluster uses itself."""
    snapshot = Snapshot.from_objects(found.objects)
    for pool in sorted(snapshot.parsed_pools.known, key=lambda each: each.name):
        overlaps = list(_overlaps(pool, snapshot))
        for span, what in overlaps:
            yield Finding(f"VIPPool {pool.name} has {span}, {what}", _exclusion(pool, [each for each, _ in overlaps]))


def _overlaps(pool: Pool, snapshot: Snapshot) -> Iterator[tuple[Range, str]]:
    """The ranges of *pool* that it does not exclude and that are the cluster's own, and whose they are."""
    declared = subtract(pool.ranges, (span for _, span in pool.excluded))
    for barred in pool.barred:
        yield from ((span, f"which lies in {barred.what}") for span in _common(declared, barred.span))
    for each in snapshot.pod_ranges.in_pool(pool):
        yield from ((span, f"which lies in {each}") for span in _common(declared, each.span))
    own = (
        (address, name)
        for name, node in sorted(snapshot.nodes.items())
        for address in dict.fromkeys(node.addresses())
        if find(declared, address) is not None
    )
    for address, name in islice(own, _MOST):
        yield Range(address.family, address.value, address.value), f"the address of node {name}"


def _common(ranges: tuple[Range, ...], other: Range) -> Iterator[Range]:
    """What *other* has in common with each of *ranges*."""
    for each in ranges:
        if each.overlaps(other):
            yield Range(each.family, max(each.first, other.first), min(each.last, other.last))


def _exclusion(pool: Pool, spans: Iterable[Range]) -> str:
    """The command that excludes *spans* from *pool*, beside what it excludes already."""
    excluded = dict.fromkeys(map(str, (*(span for _, span in pool.excluded), *spans)))
    patch = json.dumps({"spec": {"exclude": list(excluded)}})
    return f"kubectl patch vippool {quote(pool.name)} --type=merge --patch={quote(patch)}"
