"""
Which addresses an object in deletion still holds: those that its status or its running VRRP instance shows.

A finalizer, which any user who may edit the object may add, keeps it in deletion for any time. Meanwhile it keeps
the addresses that it had. Other addresses in ``spec.externalIPs`` of a Service or ``spec.virtualIPs`` of a group came
with a later edit, or were never served: they count for nothing, so that they take no address from an object that lives.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import msgspec

from kavip import names
from kavip.api.address import Address, read_address
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.memo import Memory
from kavip.vrrp import keys
from kavip.vrrp.running import RunningInstance, running_instances
from kavip.vrrp.sharding import shard_count, shard_of, shard_of_instance

T = TypeVar("T", Service, KeepalivedGroup)

Running = Mapping[str, RunningInstance]
"""The instances that the nodes of one group run, by name."""


class Cluster(Protocol):
    """The part of :class:`~kavip.snapshot.snapshot.Snapshot` that is read here."""

    def group_of(self, service: Service) -> str | None:
        """The key of the group that *service* belongs to."""

    def any_group(self, key: str) -> KeepalivedGroup | None:
        """The group with *key*."""

    def memory(self, group: str) -> Memory:
        """Where calculations for *group* keep results."""


class LeavingObjects:
    """The Services and groups in deletion that have addresses in their spec, as observed; and the published texts."""

    def __init__(self, cluster: Cluster) -> None:
        """Start empty. *cluster* determines which group serves a Service."""
        self._cluster = cluster
        self.services: dict[str, Service] = {}
        self.groups: dict[str, KeepalivedGroup] = {}
        self._texts: dict[str, str] = {}

    def held_part(self, found: Service | KeepalivedGroup) -> Service | KeepalivedGroup:
        """Observe *found*; if it is in deletion, return it with only those addresses in its spec that it holds."""
        if isinstance(found, KeepalivedGroup):
            if not _record(self.groups, found, has_addresses=bool(found.spec.virtual_ips)):
                return found
            return _held_group(found, self._running(found.key))
        if not _record(self.services, found, has_addresses=bool(found.spec.external_ips)):
            return found
        key = self._cluster.group_of(found) or ""
        return _held_service(found, self._cluster.any_group(key), self._running(key))

    def affected_by(self, group: str) -> list[Service | KeepalivedGroup]:
        """The objects that may hold other addresses once *group* has changed: any Service may be served by it."""
        own = self.groups.get(group)
        return [*self.services.values(), *([own] if own else [])]

    def forget(self, kind: str, key: str) -> None:
        """The object of *kind* with *key* is deleted."""
        if kind == names.SERVICE:
            self.services.pop(key, None)
        elif kind == names.KEEPALIVED_GROUP:
            self.groups.pop(key, None)

    def publish(self, group: str, text: str) -> None:
        """The nodes of *group* run *text* from now on; "": none."""
        if text:
            self._texts[group] = text
        else:
            self._texts.pop(group, None)

    def text(self, group: str) -> str:
        """What the nodes of *group* run; "" if that is not known."""
        return self._texts.get(group, "")

    def _running(self, group: str) -> Running:
        return running_instances(self.text(group), self._cluster.memory(group))


def _record(known: dict[str, T], found: T, *, has_addresses: bool) -> bool:
    if found.metadata.deletion_timestamp and has_addresses:
        known[found.key] = found
        return True
    known.pop(found.key, None)
    return False


def _held_service(service: Service, group: KeepalivedGroup | None, running: Running) -> Service:
    """*service* with those external IPs that it holds; *running* is what the nodes of its *group* run."""
    shown = service.ingress_addresses if service.is_load_balancer else ()
    runs = _runs(service.key, group, running, shared=not service.is_local)
    texts = (service.spec.external_ips or ())[: names.MAX_EXTERNAL_IPS]
    kept = [text for text in texts if (address := read_address(text)) and (address in shown or runs(address))]
    if kept == service.spec.external_ips:
        return service
    return msgspec.structs.replace(service, spec=msgspec.structs.replace(service.spec, external_ips=kept or None))


def _held_group(group: KeepalivedGroup, running: Running) -> KeepalivedGroup:
    """*group* with those virtual IPs that it holds; *running* is what its nodes run."""
    shown = {read_address(each.address) for each in group.status.virtual_ips or ()}
    entries = group.spec.virtual_ips or ()
    runs = {
        key: _runs(key, group, running, shared=True)
        for key in {keys.own_key(group, each.router_id) for each in entries}
    }
    kept = [
        each
        for each in entries
        if (address := _address(each.address))
        and (address in shown or runs[keys.own_key(group, each.router_id)](address))
    ]
    if len(kept) == len(entries):
        return group
    return msgspec.structs.replace(group, spec=msgspec.structs.replace(group.spec, virtual_ips=kept or None))


def _runs(key: str, group: KeepalivedGroup | None, running: Running, *, shared: bool) -> Callable[[Address], bool]:
    """Whether an instance of the object *key* in *group* runs an address; *shared*: it may be a Shared instance."""
    shard = shard_of(key, shard_count(group)) if group is not None and shared else ""
    of_shard = [each for name, each in running.items() if shard and shard_of_instance(name) == shard]

    def runs(address: Address) -> bool:
        own = (running.get(keys.instance_name(unit, address.family)) for unit in (key, f"{key}/{address}"))
        return any(each is not None and address in each.carried for each in (*own, *of_shard))

    return runs


def _address(text: str) -> Address | None:
    return read_address(text.partition("/")[0])
