"""
The invariants of every history.

*Always*: no address is in the status of two Services that cannot share it. No write takes an address away without
cause. No write gives an address in its cool-down to another Service. No write is needless.

*When idle*, which is when all changes are delivered and the queue is empty: a new ledger, made from the objects in any
order, plans no write, so no Service waits for a free address. The ledger of the history gives the same answers as the
new one, so nothing has leaked.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime

from fuzz.histories import users
from fuzz.histories.fakeclient import Request
from fuzz.histories.server import Server, Write
from kavip import names
from kavip.api import conditions
from kavip.api.address import Address, parse_address, read_address
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.ipam.allocate import settle
from kavip.ipam.ledger.cooldown import CoolingAddress
from kavip.ipam.ranges import Range, parse_range, subtract
from kavip.ipam.request import Terms
from kavip.names import Reason
from kavip.reconcile.plan import Plan, StatusPatch
from kavip.reconcile.pool import plan_pool
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Object, Snapshot
from tests.support import build

_TYPE = names.ConditionType.ADDRESS_ASSIGNED
_NOT_OURS = frozenset({"", Reason.FOREIGN_STATUS, Reason.LEFT_TO_PLATFORM})


class InvariantChecker:
    """
    Checks the invariants of one history, with the exceptions that its events allow.

    *moved*: Services that may move: a user requested it since the last idle check, or a request is still unserved.
    *contested*: addresses that may have two holders, because users, another controller or a former leader assigned them
    since then.
    """

    def __init__(self, server: Server) -> None:
        """Start without exceptions."""
        self._server = server
        self.moved: set[str] = set()
        self.contested: set[Address] = set()
        self.stale = 0
        """How often an idle check found a waiting Service with an outdated message: this alone requeues no Service."""
        self._seen = 0
        self._defaults = {""}  # every default group since the last idle check
        self._cooling: dict[Address, CoolingAddress] = {}  # those of the last idle check that no event has ended
        self._allowed: set[Range] = set()  # the ranges of all pools since the last idle check

    # --- always -------------------------------------------------------------------------------------------------------
    def check_writes(self, now: datetime) -> None:
        """Check the status writes since the last call."""
        for write in self._server.writes[self._seen :]:
            may_move = write.before.key in self.moved or write.before.metadata.annotation(names.REASSIGN_ANNOTATION)
            has_others = len(self._defaults) > 1 and _key(write.before)  # so other Services may share with it
            is_excused = may_move or has_others or not write.taken - self.contested
            assert is_excused, f"moved without cause: {_description(write)}"
            for address in sorted(write.added - self.contested):
                assert any(span.holds(address) for span in self._allowed), f"in no pool: {_description(write)}"
                assert not any(address in users.own(each) for each in self._owners()), (
                    f"not free: {_description(write)}"
                )
                cooling = self._cooling.get(address)
                is_over = cooling is None or cooling.until <= now or cooling.service == write.after.key
                # the Service's own external IP is already announced, so its cool-down does not matter
                assert is_over or address in write.before.external_addresses, (
                    f"in cool-down: {cooling}: {_description(write)}"
                )
            for address in write.after.ingress_addresses:
                self._cooling.pop(address, None)
        if self._seen < len(self._server.writes):
            self._seen = len(self._server.writes)
            for address, one, other in self._doubles():
                assert address in self.contested, f"two holders: {address} of {one} and {other}"
        assert not self._server.needless, self._server.needless

    def pool_edited(self, wire: VIPPool) -> None:
        """
        A pool was created or edited: its addresses may be assigned until the next idle check.

        A Service that names a pool, or an address of one, may lose an address that is in another pool from now on.
        """
        self._allowed |= set(_to_give(wire))
        self._cooling.clear()
        self.moved |= {key for key, each in self._server.services.items() if self._holds_of_another_pool(each)}

    def _holds_of_another_pool(self, service: Service) -> bool:
        """Whether *service* names a pool, or an address of one, and holds an address of another pool."""
        wanted = service.metadata.annotation(names.ADDRESSES_ANNOTATION).split(",")
        requested = [
            address for text in (*wanted, service.spec.load_balancer_ip) if (address := read_address(text.strip()))
        ]
        chosen = {service.metadata.annotation(names.POOL_ANNOTATION), *self._homes(requested)} - {""}
        return bool(chosen) and not self._homes(service.ingress_addresses) <= chosen

    def _homes(self, addresses: Iterable[Address]) -> set[str]:
        """The names of the pools that have any of *addresses*."""
        pools = [each for each in self._server.objects[names.VIP_POOL].values() if isinstance(each, VIPPool)]
        return {
            pool.metadata.name
            for pool in pools
            for span in _to_give(pool)
            if any(span.holds(address) for address in addresses)
        }

    def _owners(self) -> Iterator[Object]:
        for kind in (names.NODE, names.KEEPALIVED_GROUP):
            yield from self._server.objects[kind].values()

    def _doubles(self) -> Iterator[tuple[Address, str, str]]:
        holders: defaultdict[Address, list[Service]] = defaultdict(list)
        for each in self._server.services.values():
            for address in each.ingress_addresses if each.is_load_balancer else ():
                holders[address].append(each)
        for address, found in sorted(holders.items()):
            for at, one in enumerate(found):
                for other in found[at + 1 :]:
                    if not any(_may_share(one, other, default) for default in self._defaults):
                        yield address, one.key, other.key

    # --- events that allow exceptions ---------------------------------------------------------------------------------
    def service_edited(self, old: Service, new: Service) -> None:
        """A user has edited a Service: it may move if the edit requests that, and its sharing may have ended."""
        if _placement_fields(old) != _placement_fields(new):
            self.moved.add(new.key)
        self.contested |= {*old.ingress_addresses, *(address for address, _, _ in self._doubles())}

    def status_overwritten(self, key: str) -> None:
        """A writer other than the leader wrote a status: until the leader sees it, it may assign the same addresses."""
        self._seen = len(self._server.writes)
        self.moved.add(key)
        if (found := self._server.services.get(key)) is not None:
            self.contested |= set(found.ingress_addresses)
            for address in found.ingress_addresses:
                self._cooling.pop(address, None)

    def default_group_changed(self) -> None:
        """The default group may have changed: Services that depend on it may move, and may share with others."""
        self._defaults.add(self._default())
        self.moved |= {key for key, each in self._server.services.items() if not each.declared_group}

    def _default(self) -> str:
        groups = self._server.objects[names.KEEPALIVED_GROUP].values()
        return next((each.key for each in groups if isinstance(each, KeepalivedGroup) and each.is_default), "")

    # --- when idle ----------------------------------------------------------------------------------------------------
    def check_idle(self, lived: Snapshot, now: datetime, luck: random.Random) -> None:
        """Check the invariants of an idle controller, and drop all exceptions."""
        self.check_writes(now)
        objects = [each for kind in self._server.objects.values() for each in kind.values()]
        luck.shuffle(objects)
        fresh = Snapshot.from_objects(objects)
        fresh.ledger.cooldown.expire(now)
        self._defaults = {self._default()}
        self.moved.clear()
        for key, service in sorted(self._server.services.items()):
            plan = plan_service(fresh, key, now=now)
            assert not _is_due(service, plan), f"left undone: {key}: {_state(service)} but {plan.writes}"
            self.stale += bool(plan.writes)
            if self._has_unserved_request(fresh, service):
                self.moved.add(key)
        for name in sorted(fresh.pools):
            writes = plan_pool(fresh, name, now=now).writes
            assert not writes, f"left undone: pool {name}: {writes}"
        self._same(lived, fresh)
        for address, one, other in self._doubles():
            pair = [self._server.services[key] for key in (one, other)]
            is_left = any(_reason(each) in _NOT_OURS or each.metadata.deletion_timestamp for each in pair)
            assert is_left, (
                f"two holders when idle: {address} of {one} and {other}"
            )  # kavip may not write to one of them
        self.contested = {address for address, _, _ in self._doubles()}
        self._cooling = {each.address: each for name in fresh.pools for each in fresh.ledger.cooldown.of(name)}
        self._allowed = {span for wire in fresh.pools.values() for span in _to_give(wire)}

    def check_open_writes(self, adrift: Iterable[Request]) -> None:
        """Check that no open write of the idle leader can assign an address, which would then have two holders."""
        for each in adrift:
            found = self._server.services.get(each.key) if each.kind == names.SERVICE else None
            if found is not None and each.body["metadata"]["resourceVersion"] == found.metadata.resource_version:
                added = each.body["status"].get("loadBalancer", {}).get("ingress")
                assert not added, f"may still succeed: {each.by} assigns {added} to {each.key}"

    def _has_unserved_request(self, fresh: Snapshot, service: Service) -> bool:
        """Whether a request of *service* is unserved: the Service may move when it is served."""
        labels = fresh.namespace_labels(service.metadata.namespace)
        group = fresh.group_of(service)
        outcome = settle(service, fresh.parsed_pools, fresh.ledger, group=group, namespace_labels=labels)
        return isinstance(outcome, Refusal) or outcome.refusal is not None

    def _same(self, lived: Snapshot, fresh: Snapshot) -> None:
        """The ledger of the history gives the same answers as a new one."""
        one, other = lived.ledger, fresh.ledger
        assert lived.parsed_pools.in_force == fresh.parsed_pools.in_force
        for pool in fresh.parsed_pools.in_force:
            assert one.usage(pool.name) == other.usage(pool.name), f"leaked in pool {pool.name}"
            for space in users.SPACES:
                left = [each.offers.quota_left(pool, space) for each in (one, other)]
                assert left[0] == left[1], f"quota of {space} in {pool.name}"
        for key in users.KEYS:
            assert one.held(key) == other.held(key), f"{key} holds {one.held(key)}, not {other.held(key)}"
        for address in map(parse_address, users.ADDRESSES):
            # by key: without a default group, the old ledger still has the last one
            assert _keys(one.claims.claimants(address)) == _keys(other.claims.claimants(address)), (
                f"claimants of {address}"
            )
            assert _keys(one.requesting(address)) == _keys(other.requesting(address)), f"requests for {address}"
            assert one.owner(address) == other.owner(address), f"owner of {address}"
        # without a default group, the old ledger still lets the Services of the last one share
        for probe in _PROBES if fresh.default_group else (each for each in _PROBES if not _key(each)):
            answers = [
                settle(probe, each.parsed_pools, each.ledger, namespace_labels=each.namespace_labels("a"))
                for each in (lived, fresh)
            ]
            assert answers[0] == answers[1], f"the answer depends on the order of events: {answers}"


def _keys(terms: Iterable[Terms]) -> list[str]:
    return [each.key for each in terms]


_PROBES = (
    *(build.service("a/new", group=users.GROUP, wants=address, families=("IPv4",)) for address in users.ADDRESSES[:5]),
    *(
        build.service("a/new", group=users.GROUP, pool=name, families=(kind,))
        for name in users.POOLS
        for kind in ("IPv4", "IPv6")
    ),
    build.service("a/new", group=users.GROUP, annotations={names.SHARING_KEY_ANNOTATION: "web"}, port=8080),
    build.service("a/new", group=users.GROUP, annotations={names.COUNT_ANNOTATION: "3"}),
    build.service("a/new", group=users.GROUP, families=("IPv4", "IPv6"), ip_family_policy="RequireDualStack"),
)


def _key(service: Service) -> str:
    return service.metadata.annotation(names.SHARING_KEY_ANNOTATION)


def _may_share(one: Service, other: Service, default: str) -> bool:
    """The rule of sharing, written independently of the code, from the contract."""
    keys = [_key(each) for each in (one, other)]
    ports = [{(port.protocol, port.port) for port in each.spec.ports or ()} for each in (one, other)]
    local = [each.spec.external_traffic_policy == "Local" for each in (one, other)]
    return (
        bool(keys[0])
        and keys[0] == keys[1]
        and one.metadata.namespace == other.metadata.namespace
        and (one.declared_group or default) == (other.declared_group or default)
        and not ports[0] & ports[1]
        and local[0] == local[1]
        and (not local[0] or one.spec.selector == other.spec.selector)
    )


def _to_give(wire: VIPPool) -> tuple[Range, ...]:
    """The declared ranges without the excluded ones; nothing if any of them is malformed."""
    try:
        whole = [parse_range(text) for text in wire.spec.addresses]
        return subtract(whole, [parse_range(text) for text in wire.spec.exclude or ()])
    except BadInput:
        return ()


def _placement_fields(service: Service) -> object:
    """The fields of a Service whose edit may move it."""
    notes = service.metadata.annotations or {}
    spec = service.spec
    asked = (names.POOL_ANNOTATION, names.ADDRESSES_ANNOTATION, names.COUNT_ANNOTATION, names.GROUP_ANNOTATION)
    added = tuple(notes.get(key, "") for key in asked)
    return added, spec.load_balancer_ip, spec.ip_families, spec.type, spec.load_balancer_class


def _is_due(service: Service, plan: Plan) -> bool:
    """Whether *plan* assigns or removes addresses, or changes the reason of a holder; a new message may wait."""
    reported = _reason(service)
    for write in plan.writes:
        status = write.body["status"] if isinstance(write, StatusPatch) else {}
        reasons = (each.get("reason", "") for each in status.get("conditions") or () if each["type"] == _TYPE)
        new = next(reasons, reported)
        if "loadBalancer" in status or not reported or (new != reported and service.ingress_addresses):
            return True
    return False


def _reason(service: Service) -> str:
    found = conditions.find(service.status.conditions, names.ConditionType.ADDRESS_ASSIGNED)
    return found.reason if found else ""


def _state(service: Service) -> str:
    return f"{_reason(service)} {' '.join(map(str, service.ingress_addresses))}"


def _description(write: Write) -> str:
    return f"{write.by} on {write.before.key}: {_state(write.before)} -> {_state(write.after)}, {write.after}"
