"""
A simulated controller for the allocator: objects of an API server, a cache that may lag, and the controller's loop.

The controller works as the real one does: it decides on what the cache shows, expects its write, writes on condition of
the resourceVersion, and looks again only at Services that changed or that the ledger wakes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from kavip import names
from kavip.api.address import Address
from kavip.api.meta import Condition
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal
from kavip.api.service import Ingress, LoadBalancer, Service, ServiceStatus
from kavip.ipam.allocate import Allocation, settle, waits_for
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pools import Pools
from kavip.ipam.record import write_assigned
from kavip.ipam.request import read_request
from kavip.names import Reason

Outcome = Allocation | Refusal


class WriteResult(StrEnum):
    """The result of a status write."""

    DONE = "done"
    LOST = "answer lost"  # done, but the controller does not know
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Write:
    """One successful status write."""

    key: str
    before: tuple[Address, ...]
    after: tuple[Address, ...]


class SimulatedController:
    """*services* are what the API server has, *cache* is what the controller has seen of them."""

    def __init__(
        self, pools: Iterable[VIPPool] = (), namespaces: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        """Start without Services."""
        self.services: dict[str, Service] = {}
        self.cache: dict[str, Service] = {}
        self.namespaces = namespaces or {}
        self.outcomes: dict[str, Outcome] = {}
        self.writes: list[Write] = []
        self.todo: dict[str, None] = {}
        self._version = 100
        self._unseen: dict[str, None] = {}
        self.ledger = Ledger()
        self.set_pools(pools)

    # --- what users do --------------------------------------------------------------------------------------------
    def apply(self, service: Service) -> None:
        """Create or update a Service; the stored status and creationTimestamp stay, as with the API server."""
        old = self.services.get(service.key)
        if old is not None:
            meta = msgspec.structs.replace(service.metadata, creation_timestamp=old.metadata.creation_timestamp)
            service = msgspec.structs.replace(service, metadata=meta, status=old.status)
        self._store(service)

    def delete(self, key: str) -> None:
        """Delete a Service; an unknown one is ignored."""
        if self.services.pop(key, None):
            self._unseen[key] = None

    def overwrite(self, key: str, *addresses: Address) -> None:
        """A controller that no longer leads writes *addresses* into the status of *key*."""
        allocation = Allocation(addresses, (), False, Reason.ASSIGNED, write_assigned(addresses, "old"))
        self._store(with_status(self.services[key], addresses, allocation))

    def set_pools(self, pools: Iterable[VIPPool]) -> None:
        """Replace all pools; waiting Services are requeued."""
        self.pools = Pools.of(pools)
        self.ledger.configure(self.pools)
        self.todo.update(dict.fromkeys(self.cache))

    # --- what the controller does ---------------------------------------------------------------------------------
    def see(self, key: str) -> None:
        """The watch delivers the newest state of *key*."""
        self._unseen.pop(key, None)
        service = self.services.get(key)
        if service is None:
            self.cache.pop(key, None)
            self.outcomes.pop(key, None)
        else:
            self.cache[key] = service
        self.todo[key] = None
        self.ledger.observe(key, service)
        self._wake()

    def work(self, key: str, result: WriteResult = WriteResult.DONE) -> None:
        """One turn of a worker on what the cache shows of *key*."""
        self.todo.pop(key, None)
        service = self.cache.get(key)
        if service is None:
            return
        outcome = self.outcomes[key] = self.settled(service)
        addresses = () if isinstance(outcome, Refusal) else outcome.addresses
        written = with_status(service, addresses, outcome)
        is_due = written.status != service.status
        if is_due:
            self.ledger.expect(key, addresses, resource_version=service.metadata.resource_version)
        request, _ = read_request(service)
        self.ledger.wait(request, waits_for(request, outcome, self.pools, namespace_labels=self.labels(service)))
        if is_due:
            self._send(written, result)
        self._wake()

    def run(self) -> None:
        """Deliver and work until nothing is left to do; holders first, then by age."""
        for _ in range(10_000):
            for key in list(self._unseen):
                self.see(key)
            known = [key for key in self.todo if key in self.cache]
            self.todo = dict.fromkeys(known)
            if not known:
                return
            self.work(
                min(known, key=lambda key: (not self.cache[key].ingress_addresses, self.cache[key].metadata.age_key))
            )
        raise AssertionError("the controller does not come to rest")

    def restart(self) -> None:
        """A new controller lists everything; holders are entered before any Service is planned."""
        self.cache, self._unseen, self.outcomes = dict(self.services), {}, {}
        self.ledger = entered(self.pools, self.cache.values())
        self.todo = dict.fromkeys(self.cache)

    # --- questions ------------------------------------------------------------------------------------------------
    @property
    def unseen(self) -> list[str]:
        """The undelivered events."""
        return sorted(self._unseen)

    def held(self, key: str) -> list[str]:
        """The addresses in the status of *key*."""
        return [str(address) for address in self.services[key].ingress_addresses]

    def settled(self, service: Service, ledger: Ledger | None = None) -> Outcome:
        """What is decided for *service*."""
        labels = self.labels(service)
        return settle(service, self.pools, ledger or self.ledger, namespace_labels=labels)

    def labels(self, service: Service) -> dict[str, str]:
        """The labels of the Service's namespace."""
        name = service.metadata.namespace
        return {"kubernetes.io/metadata.name": name, **self.namespaces.get(name, {})}

    def _wake(self) -> None:
        self.todo.update(dict.fromkeys(self.ledger.drain_requeues()))

    def _send(self, written: Service, result: WriteResult) -> None:
        key = written.key
        stored = self.services.get(key)
        is_current = stored is not None and stored.metadata.resource_version == written.metadata.resource_version
        if stored is None or not is_current or result is WriteResult.REFUSED:
            self.ledger.abandon(key)
            self.todo[key] = None
            return
        self.writes.append(Write(key, stored.ingress_addresses, written.ingress_addresses))
        self._store(written)
        if result is WriteResult.LOST:
            self.todo[key] = None

    def _store(self, service: Service) -> None:
        self._version += 1
        meta = msgspec.structs.replace(service.metadata, resource_version=str(self._version))
        self.services[service.key] = msgspec.structs.replace(service, metadata=meta)
        self._unseen[service.key] = None


def with_status(service: Service, addresses: Iterable[Address], outcome: Outcome) -> Service:
    """*service* with the status that *outcome* calls for; another controller's ingress stays as it is."""
    reason = outcome.reason
    is_true = isinstance(outcome, Allocation) and outcome.is_assigned
    condition = Condition(
        type=names.ConditionType.ADDRESS_ASSIGNED,
        status="True" if is_true else "False",
        reason=reason,
        message=outcome.message,
    )
    ingress = [Ingress(ip=str(address), ip_mode=names.IP_MODE_VIP) for address in addresses]
    if reason is Reason.FOREIGN_STATUS:
        ingress = service.status.load_balancer.ingress or []
    status = ServiceStatus(load_balancer=LoadBalancer(ingress=ingress or None), conditions=[condition])
    return msgspec.structs.replace(service, status=status)


def entered(pools: Pools, services: Iterable[Service]) -> Ledger:
    """A ledger that has seen *services*."""
    ledger = Ledger(pools)
    for service in services:
        ledger.observe(service.key, service)
    return ledger
