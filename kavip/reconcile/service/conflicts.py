"""
Addresses of a Service that another machine on the LAN has: which of them the Service gives up, and when.

This is the only case in which an assigned address changes by itself. It needs all of this: kavip chose the address, the
Service alone has it, it was never announced, no node runs it, and there is another one. The address is first written
into the status of its pool, where it cools down for no Service, and then taken from the Service. The entries there are
the count: after :data:`TRIES` the Service keeps its address, and its condition says why it is not announced.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from kavip.api import conditions
from kavip.api.address import Address
from kavip.api.service import Service
from kavip.ipam.allocate import Allocation, settle_request
from kavip.ipam.ledger.cooldown import MAX_WITHDRAWN
from kavip.ipam.record import Record, read_record
from kavip.ipam.request import Request, read_request
from kavip.names import ConditionType, Reason
from kavip.reconcile.observed.mastership import Mastership
from kavip.reconcile.service.allocation import AddressAssignment
from kavip.snapshot import Snapshot

TRIES: Final = 3
"""How many addresses a Service gives up within an hour."""

_ANNOUNCED: Final = frozenset(
    {Reason.MASTER, Reason.NO_ENDPOINTS, Reason.ENDPOINTS_OUTSIDE_GROUP, Reason.NO_MASTER, Reason.SPLIT_BRAIN}
)
"""The reasons of ``Advertised`` that only Services have whose addresses nodes have loaded."""


class GivenUp(NamedTuple):
    """
    The addresses that a Service gives up *now*, and those that are *withdrawn* first.

    *pools*: those whose status does not have a withdrawn address yet.
    """

    now: frozenset[Address] = frozenset()
    withdrawn: tuple[Address, ...] = ()
    pools: tuple[str, ...] = ()


NOTHING: Final = GivenUp()


def addresses_given_up(snapshot: Snapshot, service: Service, group: str, mastership: Mastership) -> GivenUp:
    """The addresses that *service* of *group* gives up."""
    if not mastership.foreign_claims or not service.is_load_balancer:
        return NOTHING
    request, findings = read_request(service, group=group)
    unwanted = [each for each in request.current if _is_unwanted(snapshot, service, request, each, mastership)]
    if findings or not unwanted:
        return NOTHING
    cooldown = snapshot.ledger.cooldown
    tried = frozenset(cooldown.withdrawn_from(service.key))
    room = max(TRIES - len(tried), 0)
    fresh = tuple(each for each in unwanted if each not in tried and _may_cool_down(snapshot, each))[:room]
    if fresh and not _has_others(snapshot, service, request, fresh):
        fresh = ()
    now = frozenset(each for each in unwanted if each in tried and cooldown.is_recorded(each))
    if now and not _has_others(snapshot, service, request, now):
        now = frozenset()
    unrecorded = {*fresh, *tried.intersection(unwanted)}
    pools = {_pool(snapshot, each) for each in unrecorded if not cooldown.is_recorded(each)}
    return GivenUp(now, fresh, tuple(sorted(pools)))


def _is_unwanted(
    snapshot: Snapshot, service: Service, request: Request, address: Address, mastership: Mastership
) -> bool:
    """Whether another machine has *address*, kavip chose it for *service* alone, and no node ever announced it."""
    foreign, pool = mastership.foreign_claims.get(address), snapshot.parsed_pools.pool_of(address)
    return (
        foreign is not None
        and not foreign.claim.is_held
        and pool is not None
        and address not in announced_addresses(service)
        and not any(address in state.runs for state in mastership.states.values())
        and not mastership.lacks_answers
        and mastership.are_nodes_known(0.0)
        and address not in request.wanted
        and pool.reservations.get(address) != service.key
        and request.record.reason == Reason.ASSIGNED
        and not request.record.is_adopted
        and address in request.record.addresses
        and {claim.terms.key for claim in snapshot.ledger.claims.of(address)} == {service.key}
    )


def announced_addresses(service: Service) -> frozenset[Address]:
    """The addresses of *service* that nodes have announced, as its conditions show it."""
    record, advertised = read_record(service), conditions.find(service.status.conditions, ConditionType.ADVERTISED)
    is_shown = advertised is not None and advertised.reason in _ANNOUNCED
    return frozenset(record.announced).union(record.addresses if is_shown else ())


def with_announced(found: AddressAssignment, service: Service, *, advertised: str) -> AddressAssignment:
    """
    *found*; its condition names the addresses that were announced while ``Advertised`` does not show it.

    *advertised*: the reason of that condition from now on.
    """
    if advertised in _ANNOUNCED or found.state.reason != Reason.ASSIGNED:
        return found
    announced = announced_addresses(service)
    kept = tuple(each for each in found.addresses if each in announced) if announced else ()
    if not kept:
        return found
    message = Record(found.state.reason, found.state.message).with_announced(kept)
    return replace(found, state=replace(found.state, message=message))


def _may_cool_down(snapshot: Snapshot, address: Address) -> bool:
    return len(snapshot.ledger.cooldown.withdrawn(_pool(snapshot, address))) < MAX_WITHDRAWN


def _pool(snapshot: Snapshot, address: Address) -> str:
    pool = snapshot.parsed_pools.pool_of(address)
    return pool.name if pool else ""


def _has_others(snapshot: Snapshot, service: Service, request: Request, addresses: Iterable[Address]) -> bool:
    """Whether the IPAM has as many addresses for *service* without *addresses*."""
    labels = snapshot.namespace_labels(service.metadata.namespace)
    avoided = frozenset(addresses)
    outcome = settle_request(
        request, (), snapshot.parsed_pools, snapshot.ledger, namespace_labels=labels, avoided=avoided
    )
    return (
        isinstance(outcome, Allocation)
        and len(outcome.addresses) == len(request.current)
        and avoided.isdisjoint(outcome.addresses)
    )
