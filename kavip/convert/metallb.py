"""
MetalLB's objects as VIPPools and KeepalivedGroups.

An L2Advertisement becomes a KeepalivedGroup: both say which nodes announce addresses, and on which interface. An
IPAddressPool becomes a VIPPool of the same name, for the group of its advertisement. kavip announces addresses in their
own segment only, so what MetalLB does over BGP has no counterpart.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from kavip.api.meta import LabelSelector
from kavip.api.metallb import AddressPoolSpec, ForeignObject, L2AdvertisementSpec, ServiceAllocation
from kavip.api.unknownfields import unknown_fields
from kavip.convert.imported import (
    NO_COUNTERPART,
    Imported,
    ImportedGroup,
    ImportedPool,
    Remark,
    any_of,
    in_namespaces,
    node_affinity,
    plain_labels,
)
from kavip.errors import BadInput
from kavip.ipam.ranges import Range, parse_range, read_network

Json = dict[str, Any]
T = TypeVar("T")

POOL: Final = "IPAddressPool"
ADVERTISEMENT: Final = "L2Advertisement"
BGP: Final = "BGPAdvertisement"
OTHERS: Final = ("BGPPeer", "BFDProfile", "Community")
OLD_POOL: Final = "AddressPool"
KINDS: Final = (POOL, ADVERTISEMENT, BGP, *OTHERS, OLD_POOL)
DEFAULT_PRIORITY: Final = 100
_DRAIN: Final = ["ExcludeLabel"]  # MetalLB's speakers leave such nodes, too


@dataclass(frozen=True, slots=True)
class Wishes:
    """
    What the user says about the groups.

    *namespace*: of the groups that are made; *interface*: where an advertisement names none; *group*: an existing group
    for everything, then none is made.
    """

    namespace: str = "lb"
    interface: str = ""
    group: str = ""


def import_metallb(objects: Iterable[ForeignObject], wishes: Wishes) -> Imported:
    """The pools and groups that do what *objects* do, with remarks about the rest."""
    found = _Import(wishes)
    by_kind: dict[str, list[ForeignObject]] = {kind: [] for kind in KINDS}
    for each in found.unique(sorted(objects, key=lambda one: one.subject)):
        by_kind.setdefault(each.kind, []).append(each)
    found.read_advertisements(by_kind[ADVERTISEMENT], by_kind[POOL])
    found.read_pools(by_kind[POOL], bgp=[_selected(each) for each in by_kind[BGP]])
    for each in (*by_kind[BGP], *(one for kind in OTHERS for one in by_kind[kind])):
        found.remark(each, "", f"{NO_COUNTERPART}: kavip announces addresses by ARP and NDP, not by BGP")
    for each in by_kind[OLD_POOL]:
        if each.metadata.name not in {pool.name for pool in found.pools}:
            found.leave(each)
        found.remark(each, "", "is of MetalLB before 0.13: first make an IPAddressPool and an L2Advertisement of it")
    remarks, assigning = tuple(sorted(found.remarks)), tuple(sorted(found.assigning))
    return Imported(tuple(found.pools), tuple(found.groups), remarks, found.left, assigning)


@dataclass(slots=True)
class _Import:
    """
    One run.

    *homes*: the group of each IPAddressPool that an L2Advertisement selects; *left*: the ranges of all others.
    *assigning*: the imported pools with ``autoAssign``.
    """

    wishes: Wishes
    pools: list[ImportedPool] = field(default_factory=list)
    groups: list[ImportedGroup] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    homes: dict[str, str] = field(default_factory=dict)
    left: dict[str, tuple[Range, ...]] = field(default_factory=dict)
    assigning: list[str] = field(default_factory=list)

    def remark(self, subject: ForeignObject, path: str, text: str) -> None:
        """Add a remark."""
        self.remarks.append(Remark(subject.subject, path, text))

    def leave(self, pool: ForeignObject) -> None:
        """Note that *pool* is not imported, with those of its ranges that can be read."""
        texts = pool.spec.get("addresses")
        given = [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []
        before = self.left.get(pool.metadata.name, ())
        self.left[pool.metadata.name] = (*before, *filter(None, map(_range_of, given)))

    def unique(self, objects: Sequence[ForeignObject]) -> Iterator[ForeignObject]:
        """*objects* without those that have one name: they are of several clusters or of several MetalLBs."""
        counts = Counter((each.kind, each.metadata.name) for each in objects)
        for each in objects:
            if counts[each.kind, each.metadata.name] == 1:
                yield each
            else:
                self.remark(each, "", f"{each.kind} {each.metadata.name} is there more than once: none is imported")
                if each.kind in (POOL, OLD_POOL):
                    self.leave(each)

    # --- groups ---------------------------------------------------------------------------------------------------
    def read_advertisements(self, objects: Sequence[ForeignObject], pools: Sequence[ForeignObject]) -> None:
        """A group for each way to announce; the pools of each advertisement."""
        made: dict[bytes, str] = {}
        for each in objects:
            spec = self._read(each, L2AdvertisementSpec)
            for name in sorted({*((spec and spec.ip_address_pools) or ())} - {one.metadata.name for one in pools}):
                self.remark(each, "spec.ipAddressPools", f"{name}: no IPAddressPool of this name is imported")
            selected = [pool for pool in pools if spec and is_advertised(pool, spec)]
            if spec is None or not selected:
                continue
            key = self.wishes.group or self._group(each, spec, made)
            for pool in selected:
                if (other := self.homes.setdefault(pool.metadata.name, key)) != key:
                    self.remark(each, "spec.ipAddressPools", f"{pool.metadata.name} is in group {other} already")

    def _group(self, subject: ForeignObject, spec: L2AdvertisementSpec, made: dict[bytes, str]) -> str:
        """The key of the group that announces like *spec*; advertisements that announce alike have one."""
        interfaces, selectors = spec.interfaces or [self.wishes.interface], spec.node_selectors or []
        body: Json = {"interface": interfaces[0], "drainOn": _DRAIN}
        if (labels := plain_labels(selectors)) is not None:
            body["nodeSelector"] = dict(labels)
        elif selectors:
            body["affinity"] = node_affinity(selectors)
        identity = msgspec.json.encode(body, order="deterministic")
        if identity not in made:
            made[identity] = f"{self.wishes.namespace}/{subject.metadata.name}"
            self.groups.append(ImportedGroup(made[identity], body))
        if len(interfaces) > 1:
            rest = ", ".join(interfaces[1:])
            self.remark(
                subject, "spec.interfaces", f"{rest}: a group has one interface; the addresses are on the first"
            )
        if not interfaces[0]:
            self.remark(subject, "spec.interfaces", "names none: give the interface of the addresses with --interface")
        if spec.service_selectors:
            text = (
                f"{NO_COUNTERPART}: a Service names its group, and gets it by this import from the pool of its address"
            )
            self.remark(subject, "spec.serviceSelectors", text)
        return made[identity]

    # --- pools ----------------------------------------------------------------------------------------------------
    def read_pools(self, objects: Sequence[ForeignObject], *, bgp: Sequence[L2AdvertisementSpec]) -> None:
        """A VIPPool for each IPAddressPool that is announced in its segment."""
        specs = {each.metadata.name: spec for each in objects if (spec := self._read(each, AddressPoolSpec))}
        ranks = _priorities(specs)
        for each in objects:
            spec, name = specs.get(each.metadata.name), each.metadata.name
            if spec is None:
                self.leave(each)
                continue
            if name not in self.homes:
                is_bgp = any(is_advertised(each, one) for one in bgp)
                text = "announced by BGP only" if is_bgp else "no L2Advertisement selects it"
                self.remark(each, "", f"{text}: no VIPPool is made of it")
                self.leave(each)
                continue
            if any(is_advertised(each, one) for one in bgp):
                self.remark(each, "", f"is announced by BGP, too; that {NO_COUNTERPART}")
            ranges = tuple(self._ranges(each, spec))
            body: Json = {"addresses": [str(one) for one in ranges]}
            body |= {"autoAssign": False} if not spec.auto_assign else {}
            body |= {"avoidBuggyIPs": True} if spec.avoid_buggy_ips else {}
            body |= {"priority": ranks[name]} if ranks[name] != DEFAULT_PRIORITY else {}
            body |= self._audience(each, spec.service_allocation or ServiceAllocation())
            self.pools.append(ImportedPool(name, body, ranges, self.homes[name]))
            self.assigning += [name] if spec.auto_assign else []

    def _ranges(self, subject: ForeignObject, spec: AddressPoolSpec) -> Iterator[Range]:
        for index, text in enumerate(spec.addresses):
            path = f"spec.addresses[{index}]"
            try:
                yield parse_range(text, path)
            except BadInput as error:
                network = read_network(text)  # MetalLB ignores host bits
                if network is None:
                    self.remarks.append(Remark(subject.subject, path, str(error).removeprefix(f"{path}: ")))
                else:
                    self.remark(subject, path, f"{text} has host bits set; written as {network}")
                    yield network

    def _audience(self, subject: ForeignObject, spec: ServiceAllocation) -> Json:
        """``namespaceSelector`` and ``serviceSelector``. What cannot be joined is left out, and the pool is closed."""
        found: Json = {}
        namespaces = [*(spec.namespace_selectors or ())]
        if spec.namespaces:
            namespaces.append(in_namespaces(spec.namespaces))
        for name, selectors in (("namespaceSelector", namespaces), ("serviceSelector", spec.service_selectors or [])):
            if not selectors:
                continue
            joined = any_of(selectors)
            if joined is not None:
                found[name] = msgspec.to_builtins(joined)
                continue
            path = f"spec.serviceAllocation.{name}s"
            self.remark(
                subject, path, f"alternatives of different labels: a VIPPool has one {name}; autoAssign: false instead"
            )
            found["autoAssign"] = False
        return found

    def _read(self, subject: ForeignObject, kind: type[T]) -> T | None:
        """``spec`` as *kind*; None if it is malformed, with a remark. Unknown fields get one each."""
        try:
            spec = msgspec.convert(subject.spec, kind)
        except msgspec.ValidationError as error:
            self.remark(subject, "spec", f"cannot be read: {error}")
            return None
        for path, _ in unknown_fields(subject.spec, kind, path="spec"):
            self.remark(subject, path, NO_COUNTERPART)
        return spec


def is_advertised(pool: ForeignObject, spec: L2AdvertisementSpec) -> bool:
    """Whether an advertisement with *spec* selects *pool*; without names and selectors it selects all."""
    names, selectors = spec.ip_address_pools or (), spec.ip_address_pool_selectors or ()
    if not names and not selectors:
        return True
    return pool.metadata.name in names or any(each.matches(pool.metadata.labels) for each in selectors)


def _range_of(text: str) -> Range | None:
    try:
        return read_network(text) or parse_range(text, "")
    except BadInput:
        return None


def _selected(subject: ForeignObject) -> L2AdvertisementSpec:
    """Which pools a BGPAdvertisement selects: its fields have the same names."""
    names, selectors = subject.spec.get("ipAddressPools"), subject.spec.get("ipAddressPoolSelectors")
    try:
        return L2AdvertisementSpec(
            ip_address_pools=msgspec.convert(names, list[str] | None),
            ip_address_pool_selectors=msgspec.convert(selectors, list[LabelSelector] | None),
        )
    except msgspec.ValidationError:
        return L2AdvertisementSpec(ip_address_pools=[""])


def _priorities(specs: Mapping[str, AddressPoolSpec]) -> dict[str, int]:
    """
    The priority of each pool; lower is tried first, as in MetalLB.

    MetalLB tries pools with a ``serviceAllocation`` first, those without a priority after those with one, and all other
    pools last.
    """
    allocations = {name: spec.service_allocation for name, spec in specs.items()}
    last = max((each.priority for each in allocations.values() if each), default=0)
    is_pinned = any(allocations.values())
    unranked = max(last + 1, DEFAULT_PRIORITY - 1) if is_pinned else DEFAULT_PRIORITY
    others = max(unranked + 1, DEFAULT_PRIORITY) if is_pinned else DEFAULT_PRIORITY
    return {name: (each.priority or unranked) if each else others for name, each in allocations.items()}
