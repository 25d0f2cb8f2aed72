"""
What an import makes of the objects of another load balancer, and where each of its Services goes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from kavip import names
from kavip.admission import policy
from kavip.api.address import Address, read_address
from kavip.api.group import KeepalivedGroup
from kavip.api.handover import HandedService
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from kavip.cli.views.conversion import allocation_of
from kavip.cli.views.listing import Listing
from kavip.cli.views.scope import EVERY, Scope
from kavip.cli.views.simulate import labelled
from kavip.convert import handover
from kavip.convert.handover import Goal
from kavip.convert.imported import Imported, ImportedPool, Remark
from kavip.convert.provider import Provider
from kavip.convert.sharing import sharers
from kavip.convert.steps import Json, after
from kavip.names import Reason
from kavip.snapshot import KINDS, Object, Snapshot

_NO_GROUP: Final = Refusal(
    Reason.GROUP_NOT_FOUND, "the files do not tell which group serves it: give one with --group", "metadata.annotations"
)


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """
    One Service of the other load balancer: its *goal*, or the *refusals* that prevent the hand-over.

    *addresses*: those that it keeps. *patch*: what the hand-over changes in the end.
    """

    service: Service
    goal: Goal
    addresses: tuple[Address, ...]
    refusals: tuple[Refusal, ...] = ()

    @property
    def key(self) -> str:
        """``ns/name``."""
        return self.service.key

    @property
    def patch(self) -> Json:
        """What the hand-over changes in the end."""
        return handover.final_patch(self.service, self.goal, self.addresses)


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """
    The manifests, the Services sorted by key, and remarks about both.

    *units*: the Services that are handed over together because they share addresses, the oldest first.
    """

    imported: Imported
    rows: tuple[ServiceRow, ...] = ()
    remarks: tuple[Remark, ...] = ()
    units: tuple[tuple[ServiceRow, ...], ...] = ()

    @property
    def refused(self) -> tuple[ServiceRow, ...]:
        """The Services that cannot be handed over."""
        return tuple(each for each in self.rows if each.refusals)


@dataclass(slots=True)
class _Plan:
    """One run of :func:`plan_import`."""

    provider: Provider
    imported: Imported
    services: Mapping[str, HandedService]
    sharing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def goal(self, service: Service, group: str) -> Goal:
        """Where *service* goes."""
        pool = self.provider.meaning(service, names.POOL_ANNOTATION)
        known = pool if any(each.name == pool for each in self.imported.pools) else ""
        key = self._sharing_key(service)
        return Goal(group=group, sharing_key=key, pool=known, withdraws=self.provider.withdraws)

    def _sharing_key(self, service: Service) -> str:
        """Its own key, or that of a Service with which it shares an address, or one made of the lowest address."""
        connected = self.sharing.get(service.key, ())
        for each in (service, *(self.services[key] for key in connected)):
            if own := self.provider.meaning(each, names.SHARING_KEY_ANNOTATION):
                return own
        vips = [vip for key in connected for vip in addresses_of(self.services[key])]
        return f"shared-{min(vips)}" if vips else ""

    def pool_of(self, addresses: Sequence[Address]) -> ImportedPool | None:
        """The pool that holds all *addresses*."""
        for pool in self.imported.pools:
            if addresses and all(any(span.holds(each) for span in pool.ranges) for each in addresses):
                return pool
        return None

    def staying(self, service: Service, addresses: Sequence[Address]) -> Refusal | None:
        """Why *service* stays where it is: it asks for a pool that is not imported, or has an address of one."""
        named = self.provider.meaning(service, names.POOL_ANNOTATION)
        for name, ranges in self.imported.left.items():
            if found := next((each for each in addresses if any(span.holds(each) for span in ranges)), None):
                return Refusal(Reason.ADDRESS_NOT_IN_POOL, f"{found} is of pool {name}, which is not imported")
            if name == named:
                message = f"asks for pool {name}, which is not imported"
                return Refusal(Reason.POOL_NOT_FOUND, message, "metadata.annotations")
        return None

    def obstacles(self, service: HandedService) -> Iterator[Refusal]:
        """What prevents the hand-over, apart from what kavip would refuse."""
        if obstacle := handover.obstacle_of(service):
            yield obstacle
        others = [key for key in self.sharing.get(service.key, ()) if key != service.key]
        if others and service.has_foreign_class:
            message = (
                f"shares an address with {', '.join(others)}, and has a class: kavip does not touch Services with "
                "another class, so they cannot share it while one after the other moves; give it another address first"
            )
            yield Refusal(Reason.SHARING_REFUSED, message, "spec.loadBalancerClass")


def plan_import(
    imported: Imported,
    provider: Provider,
    services: Collection[HandedService],
    cluster: Listing,
    scope: Scope = EVERY,
) -> ImportPlan:
    """
    Where the Services of *provider* in *scope* go, judged with the objects of *cluster*.

    Raises :class:`BadInput` if *scope* names a Service that does not exist.
    """
    scope.check({each.key for each in services})
    theirs = {each.key: each for each in services if provider.serves(each)}
    held = {key: addresses_of(each) for key, each in theirs.items()}
    plan = _Plan(provider, imported, theirs, sharers(held))
    rows: dict[str, ServiceRow] = {}
    remarks = list(imported.remarks)
    for key, service in sorted(theirs.items()):
        if not scope.has(key):
            continue
        pool, subject = plan.pool_of(held[key]), f"{names.SERVICE} {key}"
        if pool is None:
            what = ", ".join(map(str, held[key])) or "has no address"
            remarks.append(Remark(subject, "status.loadBalancer", f"{what}: in no pool of this import, so it stays"))
            continue
        remarks += provider.remarks(service)
        goal = plan.goal(service, pool.group)
        rows[key] = ServiceRow(service, goal, held[key], tuple(plan.obstacles(service)))
    judged = _together(_judged(rows, cluster), plan.sharing)
    return ImportPlan(imported, tuple(judged.values()), tuple(sorted(remarks)), _units(judged, plan.sharing))


def with_imported(cluster: Listing, imported: Imported) -> Listing:
    """*cluster* as it is after the manifests of *imported* are applied; what exists already stays as it is."""
    made: tuple[Object, ...] = (
        *(msgspec.convert(each.body, KeepalivedGroup) for each in imported.groups),
        *(msgspec.convert(each.body, VIPPool) for each in imported.pools),
    )
    existing = {(type(each), each.metadata.key) for each in cluster.objects}
    new = [each for each in made if (type(each), each.metadata.key) not in existing]
    kinds = {KINDS[type(each)] for each in new}
    return replace(cluster, objects=(*cluster.objects, *new), absent=cluster.absent - kinds)


def addresses_of(service: HandedService) -> tuple[Address, ...]:
    """The addresses that *service* has now: in the middle of a hand-over they are external IPs."""
    if service.hand_over is not None:
        return service.virtual_ips
    return service.ingress_addresses


def _units(
    rows: Mapping[str, ServiceRow], sharing: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[ServiceRow, ...], ...]:
    found: dict[tuple[str, ...], None] = {}
    for key, row in rows.items():
        if not row.refusals:
            found[sharing.get(key, (key,))] = None
    units = ([rows[key] for key in keys if key in rows and not rows[key].refusals] for keys in found)
    return tuple(tuple(sorted(unit, key=lambda row: row.service.metadata.age_key)) for unit in units)


def _together(rows: dict[str, ServiceRow], sharing: Mapping[str, tuple[str, ...]]) -> dict[str, ServiceRow]:
    """
    *rows*; if a Service stays, those that share an address with it stay too.

    An address has one announcer: it must not be handed over for a part of its Services.
    """
    found = {}
    for key, row in rows.items():
        staying = [each for each in sharing.get(key, ()) if each != key and (each not in rows or rows[each].refusals)]
        message = f"shares an address with {', '.join(staying)}, which cannot be handed over"
        refusal = Refusal(Reason.SHARING_REFUSED, message, "status.loadBalancer")
        found[key] = replace(row, refusals=(refusal,)) if staying and not row.refusals else row
    return found


def _judged(rows: Mapping[str, ServiceRow], cluster: Listing) -> dict[str, ServiceRow]:
    """*rows* with what admission and allocation of kavip would refuse in the end."""
    snapshot, final = Snapshot(), {key: after(_plain(row.service), _final(row)) for key, row in rows.items()}
    for each in cluster.objects:
        snapshot.put(labelled(final.get(each.key, each) if isinstance(each, Service) else each))
    for service in final.values():
        snapshot.put(service)
    found = {}
    for key, row in rows.items():
        refusals = list(row.refusals)
        if not refusals and names.VIP_POOL not in cluster.absent and names.KEEPALIVED_GROUP not in cluster.absent:
            verdict = policy.review(Review(Operation.CREATE, final[key]), snapshot)
            refusals += verdict.refusals
            allocation = allocation_of(final[key], snapshot) if not refusals else ()
            refusals += [allocation] if isinstance(allocation, Refusal) else []
        found[key] = replace(row, refusals=tuple(refusals))
    return found


def _plain(service: Service) -> Service:
    """*service* as decisions read it."""
    return msgspec.convert(msgspec.to_builtins(service), Service)


def _final(row: ServiceRow) -> Json:
    """The Service when it has arrived, with its addresses in the status."""
    addresses = [{"ip": str(each)} for each in row.addresses]
    spec = {"type": "LoadBalancer", "loadBalancerClass": names.LOAD_BALANCER_CLASS, "externalIPs": None}
    status = {"loadBalancer": {"ingress": addresses}, "conditions": None}
    return {**row.patch, "spec": spec, "status": status}


# --- manifests --------------------------------------------------------------------------------------------------------
def plan_manifests(
    imported: Imported, provider: Provider, services: Collection[Service], scope: Scope, *, group: str
) -> ImportPlan:
    """
    The same for *services* in manifests, where nothing is known but what the author wrote.

    Without *group*, the one of the pool that a Service names, or of its address, or the only one.
    """
    scope.check({each.key for each in services})
    plan = _Plan(provider, imported, {})
    rows, remarks = [], list(imported.remarks)
    theirs = [each for each in sorted(services, key=lambda each: each.key) if provider.may_serve(each)]
    wanted = {each.key: _wanted(provider, each) for each in theirs}
    for service in (each for each in theirs if scope.has(each.key)):
        remarks += provider.remarks(service)
        addresses = wanted[service.key]
        goal = plan.goal(service, group or _group_of(plan, service, addresses))
        staying = plan.staying(service, (*addresses, *service.ingress_addresses)) or _sharing_beyond(service, wanted)
        if not staying and not goal.pool and (pool := provider.meaning(service, names.POOL_ANNOTATION)):
            text = f"pool {pool} is not in the files, so the Service names none, and kavip chooses its pool"
            remarks.append(Remark(f"{names.SERVICE} {service.key}", "metadata.annotations", text))
        refusals = (staying,) if staying else () if goal.group else (_NO_GROUP,)
        rows.append(ServiceRow(service, goal, addresses, refusals))
    return ImportPlan(imported, tuple(rows), tuple(sorted(remarks)))


def _wanted(provider: Provider, service: Service) -> tuple[Address, ...]:
    """The addresses that the manifest *service* asks for."""
    texts = provider.meaning(service, names.ADDRESSES_ANNOTATION) or service.spec.load_balancer_ip
    return tuple(filter(None, (read_address(text.strip()) for text in texts.split(","))))


def _sharing_beyond(service: Service, wanted: Mapping[str, tuple[Address, ...]]) -> Refusal | None:
    """Why *service* stays: a Service of another namespace asks for its address, too."""
    home = service.metadata.namespace
    for key, addresses in sorted(wanted.items()):
        common = sorted({*addresses} & {*wanted[service.key]})
        if common and key.partition("/")[0] != home:
            message = f"shares {common[0]} with {key}: Services of different namespaces cannot share an address"
            return Refusal(Reason.SHARING_REFUSED, message, "metadata.annotations")
    return None


def _group_of(plan: _Plan, service: Service, addresses: tuple[Address, ...]) -> str:
    named = plan.provider.meaning(service, names.POOL_ANNOTATION)
    pool = next((each for each in plan.imported.pools if each.name == named), None) or plan.pool_of(addresses)
    groups = {each.group for each in plan.imported.pools}
    return pool.group if pool else next(iter(groups)) if len(groups) == 1 else ""
