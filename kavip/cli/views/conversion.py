"""
Which Services with external IPs can become LoadBalancer Services, and what changes in them.

The admission policy and the allocation of kavip evaluate each Service as it would be after the first step, so a Service
that kavip could not serve in the end is not touched.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from kavip import names
from kavip.api import conditions
from kavip.api.address import Address
from kavip.api.refusal import Refusal, listed
from kavip.api.service import Service
from kavip.cli.views import simulate
from kavip.cli.views.listing import Listing
from kavip.cli.views.scope import EVERY, Scope
from kavip.convert import externalips
from kavip.convert.externalips import Conversion
from kavip.convert.steps import after, annotated
from kavip.ipam.allocate import settle
from kavip.ipam.ranges import Range
from kavip.names import Reason
from kavip.snapshot import Snapshot

NOT_SERVED: Final = "kavip does not announce its external IPs: it has no group annotation, and no class of kavip"


@dataclass(frozen=True, slots=True)
class Row:
    """One Service: its *conversion*, or the *refusals* that prevent it. *remarks*: what else the user must know."""

    service: Service
    conversion: Conversion | None = None
    refusals: tuple[Refusal, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """``ns/name``."""
        return self.service.key


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """
    The Services with external IPs, sorted by key.

    *sharing*: the key that each needs first because it shares an address; that is also the case for Services that
    share one with a converted Service, and that the user did not choose. *left*: those that kavip does not serve.
    *without_pool*: the external IPs that are in no pool, as few ranges.
    """

    rows: tuple[Row, ...] = ()
    sharing: tuple[tuple[str, str], ...] = ()
    left: tuple[str, ...] = ()
    without_pool: tuple[Range, ...] = ()

    @property
    def converted(self) -> tuple[Row, ...]:
        """The Services that can be converted."""
        return tuple(each for each in self.rows if each.conversion)

    @property
    def refused(self) -> tuple[Row, ...]:
        """The Services that cannot."""
        return tuple(each for each in self.rows if not each.conversion)


def plan_conversion(cluster: Listing, scope: Scope = EVERY) -> ConversionPlan:
    """
    What becomes of the Services in *cluster* that have external IPs and are in *scope*.

    Raises :class:`BadInput` if *scope* names a Service that does not exist.
    """
    stored = {each.key: each for each in cluster.objects if isinstance(each, Service)}
    scope.check(stored)
    sharing = externalips.sharing_keys(stored.values())
    services = {key: _keyed(each, sharing.get(key, "")) for key, each in stored.items()}
    found = {key: externalips.conversion_of(services[key]) for key in sorted(filter(scope.has, services))}
    conversions = [each for each in found.values() if isinstance(each, Conversion)]
    others = (each for each in cluster.objects if not isinstance(each, Service))
    rows = _judged(conversions, replace(cluster, objects=(*others, *services.values())))
    rows += [Row(services[key], refusals=(each,)) for key, each in found.items() if isinstance(each, Refusal)]
    left = (services[key] for key, each in found.items() if each is None)
    pools = Snapshot.from_objects(cluster.objects).parsed_pools
    outside = {vip for each in rows for vip in each.service.external_addresses if pools.pool_of(vip) is None}
    sharers = externalips.connected(stored.values())
    needed = {key for each in rows if each.conversion for key in sharers.get(each.key, ())}
    return ConversionPlan(
        tuple(sorted(rows, key=lambda row: row.key)),
        sharing=tuple((key, text) for key, text in sharing.items() if key in needed and _lacks(stored[key], text)),
        left=tuple(each.key for each in left if each.spec.external_ips and not each.metadata.deletion_timestamp),
        without_pool=tuple(_ranges(outside)) if names.VIP_POOL not in cluster.absent else (),
    )


def _lacks(service: Service, key: str) -> bool:
    """Whether *service* needs the sharing *key* ("": none) and does not have it."""
    return bool(key) and service.metadata.annotation(names.SHARING_KEY_ANNOTATION) != key


def _keyed(service: Service, key: str) -> Service:
    """*service* with the sharing *key*, if it needs one."""
    return after(service, annotated(**{names.SHARING_KEY_ANNOTATION: key})) if _lacks(service, key) else service


def _judged(conversions: Collection[Conversion], cluster: Listing) -> list[Row]:
    """Each conversion, or why admission would refuse it or the controller would not assign its addresses."""
    requesting = {each.service.key: each.requesting for each in conversions}
    simulated = simulate.admit(requesting.values(), cluster=cluster)
    refusals = {f"{each.namespace}/{each.name}": list(each.verdict.refusals) for each in simulated.reviewed}
    rows = []
    for each in conversions:
        key, remarks = each.service.key, tuple[str, ...]()
        found = refusals[key]
        if refusal := _operator_runs(simulated.snapshot, requesting[key].declared_group):
            found.append(refusal)
        if not found and names.VIP_POOL not in cluster.absent:
            allocation = allocation_of(requesting[key], simulated.snapshot)
            if isinstance(allocation, Refusal):
                found.append(allocation)
            else:
                remarks = tuple(_more(allocation, requesting[key]))
        rows.append(Row(each.service, None if found else each, tuple(found), remarks))
    return rows


def allocation_of(requesting: Service, snapshot: Snapshot) -> tuple[Address, ...] | Refusal:
    """The addresses that the controller assigns, or why it does not."""
    labels, group = snapshot.namespace_labels(requesting.metadata.namespace), snapshot.group_of(requesting)
    found = settle(requesting, snapshot.parsed_pools, snapshot.ledger, group=group, namespace_labels=labels)
    if isinstance(found, Refusal):
        return found
    return found.addresses if found.reason == Reason.ASSIGNED else Refusal(found.reason, found.message)


def _more(addresses: tuple[Address, ...], requesting: Service) -> Iterator[str]:
    """The remark about addresses that the Service gets besides its external IPs."""
    known = {*requesting.external_addresses, *requesting.ingress_addresses}
    if more := [each for each in addresses if each not in known]:
        yield f"gets {listed(more)} too: kavip assigns the same number of addresses of each family that it can"


def _operator_runs(snapshot: Snapshot, key: str) -> Refusal | None:
    """That keepalived-operator still runs, so that kavip assigns nothing to the Services of group *key*."""
    group = snapshot.groups.get(key)
    found = conditions.find(group.status.conditions, names.ConditionType.ACCEPTED) if group else None
    if found is None or found.reason != Reason.OLD_OPERATOR_RUNNING:
        return None
    return Refusal(Reason.OLD_OPERATOR_RUNNING, f"KeepalivedGroup {key}: {found.message}")


def _ranges(addresses: Collection[Address]) -> Iterator[Range]:
    """*addresses*, sorted, as ranges of consecutive ones."""
    current: Range | None = None
    for family, value in sorted(addresses):
        if current and (current.family, current.last + 1) == (family, value):
            current = current._replace(last=value)
            continue
        if current:
            yield current
        current = Range(family, value, value)
    if current:
        yield current
