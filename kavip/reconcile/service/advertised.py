"""
Whether a Service is advertised: is exactly one node the master of each of its VIPs, and which.

A chain of named checks over what the agents report (:mod:`~kavip.reconcile.observed.mastership`); the worst objection
to any VIP gives reason and message. That no master has an endpoint (policy ``Local``) comes last.
:mod:`~kavip.reconcile.service.throttle` decides when it is written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kavip import names
from kavip.api.address import Address
from kavip.names import ConditionType, Reason
from kavip.reconcile.observed.mastership import Mastership, MasterState
from kavip.reconcile.plan import ConditionState
from kavip.reconcile.service.vips import ServiceVIPs
from kavip.reconcile.text import few
from kavip.vrrp import tracking

_NAMED: Final = 3  # nodes that a message names


@dataclass(frozen=True, slots=True)
class AdvertisedState:
    """
    The condition ``Advertised`` by what the agents report.

    *state*: None if it is unknown until *wait* seconds have passed. *is_run*: some node runs each of the VIPs.
    """

    state: ConditionState | None
    wait: float = 0.0
    is_run: bool = True


_Masters = Mapping[Address, MasterState]


def advertised_state(vips: ServiceVIPs, mastership: Mastership) -> AdvertisedState:
    """The first objection over all VIPs, or their masters."""
    if vips.serving.group is None or not vips.addresses:
        message = f"nothing is advertised: see {ConditionType.SERVICE_PROGRAMMED}"
        return AdvertisedState(ConditionState("Unknown", Reason.UNKNOWN, message), is_run=False)
    masters = {vip: mastership.master_of(vip) for vip in vips.addresses}
    is_run = all(each.is_run for each in masters.values())
    for check in CHECKS:
        if objection := check(masters, mastership):
            return AdvertisedState(objection, is_run=is_run)
    if waits := [each.wait for each in masters.values() if each.reason is None]:
        return AdvertisedState(None, min(waits))
    return AdvertisedState(_without_endpoints(vips, masters, mastership) or _held(masters))


def _held(masters: _Masters) -> ConditionState:
    return ConditionState("True", Reason.MASTER, _locations(masters))


def _at_most_one_each(masters: _Masters, mastership: Mastership) -> ConditionState | None:
    for vip, each in masters.items():
        if each.reason == Reason.SPLIT_BRAIN:
            message = (
                f"{vip} is held by nodes {', '.join(each.nodes)} at once: they do not receive each other's VRRP "
                f"packets; look for a firewall or a switch between them{_note(each.nodes, mastership)}"
            )
            return ConditionState("False", Reason.SPLIT_BRAIN, message)
    return None


def _claimed_elsewhere(masters: _Masters, mastership: Mastership) -> ConditionState | None:
    found = {vip: foreign for vip in masters if (foreign := mastership.foreign_claim(vip))}
    if not found:
        return None
    vip, foreign = next(iter(found.items()))
    claim, holders = foreign.claim, masters[vip].nodes
    what = f"node {', '.join(holders)} holds {vip}, and another" if holders else f"{vip} is not announced: another"
    message = (
        f"{what} machine on the LAN has it, {claim.hardware}, as node {foreign.node} hears on {claim.interface}; give "
        f"that machine another address, or request another one ({names.ADDRESSES_ANNOTATION}) and then exclude {vip} "
        "from the pool"
    )
    others = [each for each in found if each != vip]
    more = f"; the same holds for {_texts(others)}" if others else ""
    return ConditionState("False", Reason.ADDRESS_CONFLICT, f"{message}{more}")


def _at_least_one_each(masters: _Masters, mastership: Mastership) -> ConditionState | None:
    lost = [vip for vip, each in masters.items() if each.reason == Reason.NO_MASTER]
    if not lost:
        return None
    cause = _faults(lost[0], mastership) if mastership.has_nodes else f": see {ConditionType.SERVICE_PROGRAMMED}"
    return ConditionState("False", Reason.NO_MASTER, f"no node holds {_texts(lost)}{cause}")


def _faults(vip: Address, mastership: Mastership) -> str:
    """Where keepalived is in FAULT with *vip*, and the warning there: mostly a health check fails."""
    nodes = mastership.faults(vip)
    if not nodes:
        return ""
    where = _note(nodes, mastership, before="") or f"see the agents' {names.STATE_PATH}"
    return f"; keepalived is in FAULT on {few(nodes)}: {where}"


def _note(nodes: Sequence[str], mastership: Mastership, *, before: str = "; ") -> str:
    """The warning of the first of *nodes* that has one."""
    states = ((node, mastership.states.get(node)) for node in nodes)
    return next((f"{before}{node} reports: {state.note}" for node, state in states if state and state.note), "")


def _known_each(masters: _Masters, _mastership: Mastership) -> ConditionState | None:
    unknown = {vip: each for vip, each in masters.items() if each.reason == Reason.UNKNOWN}
    if not unknown:
        return None
    if missing := [vip for vip, each in unknown.items() if not (each.is_run or each.silent)]:
        message = f"no node runs an instance with {_texts(missing)}: see {ConditionType.SERVICE_PROGRAMMED}"
        return ConditionState("Unknown", Reason.UNKNOWN, message)
    silent = sorted({node for each in unknown.values() for node in each.silent})
    message = f"the master of {_texts(list(unknown))} is unknown: no answer from the agents on {few(silent)}"
    return ConditionState("Unknown", Reason.UNKNOWN, message)


CHECKS: Final[tuple[Callable[[_Masters, Mastership], ConditionState | None], ...]] = (
    _at_most_one_each,
    _claimed_elsewhere,
    _at_least_one_each,
    _known_each,
)


def _without_endpoints(vips: ServiceVIPs, masters: _Masters, mastership: Mastership) -> ConditionState | None:
    """
    The state of VIPs that have masters and do not answer: kube-proxy sends only to endpoints of its own node.

    The EndpointSlices of such a Service are read from then on (:attr:`~kavip.api.service.Service.needs_slices`).
    """
    service, serving = vips.service, vips.serving
    if not service.is_local:
        return None
    tracks = {tracking.local_track(unit) for unit in (service.key, *(f"{service.key}/{vip}" for vip in vips.addresses))}
    if any(tracks.isdisjoint(each.unready) for each in mastership.states.values()):
        return None
    message = f"{_locations(masters)}; connections to it are dropped (externalTrafficPolicy: Local)"
    members = serving.snapshot.group_nodes(serving.group) if serving.group else ()
    outside = serving.snapshot.endpoint_nodes(service.key)
    if not outside or not outside.isdisjoint(node.metadata.name for node in members):
        return ConditionState("True", Reason.NO_ENDPOINTS, f"{message}: no node has a ready endpoint")
    verb, them = ("is", "it") if len(outside) == 1 else ("are", "one of them")
    remedy = (
        f"ready on {few(sorted(outside))}, which {verb} not in KeepalivedGroup {serving.key}: add {them} to the group, "
        "or run a pod on a node of the group"
    )
    return ConditionState("False", Reason.ENDPOINTS_OUTSIDE_GROUP, f"{message}: {remedy}")


def _locations(masters: _Masters) -> str:
    """The VIPs of each node: stable while nothing moves."""
    nodes: dict[str, list[Address]] = {}
    for vip, each in sorted(masters.items()):
        nodes.setdefault(each.nodes[0], []).append(vip)
    texts = [f"node {node} holds {_texts(vips)}" for node, vips in sorted(nodes.items())]
    rest = len(texts) - _NAMED
    return "; ".join(texts[:_NAMED]) + (f"; and {rest} more nodes hold the rest" if rest > 0 else "")


def _texts(vips: Sequence[Address]) -> str:
    return few([str(vip) for vip in vips])
