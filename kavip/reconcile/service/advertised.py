"""
Whether a Service is advertised: does exactly one node hold each of its VIPs, and which.

A chain of named checks over what the agents say (:mod:`~kavip.reconcile.observed.mastership`); the worst that holds for
any VIP is the verdict. A master is told as soon as it is known; that there is none, or that it is not known, only when
it lasts: a fail-over is over before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kavip import names
from kavip.api import conditions
from kavip.api.address import Address
from kavip.api.meta import Condition
from kavip.api.service import Service
from kavip.names import Condition as ConditionType
from kavip.names import Reason
from kavip.reconcile.observed.mastership import Mastership, MasterState
from kavip.reconcile.plan import ConditionState, Unconfirmed
from kavip.reconcile.service.programmed import Case
from kavip.reconcile.text import few
from kavip.vrrp import tracking

PATIENCE: Final = 10.0
"""Seconds for which agents may be silent, and a configuration on its way, before the master is not known any more."""
IN_VAIN: Final = "; nobody answers there: "
_NAMED: Final = 3  # nodes that a message names


@dataclass(frozen=True, slots=True)
class Found:
    """
    What was found for one Service: the *verdict*, None where it cannot be said before *wait* seconds are over.

    *is_run*: by some node, with all its VIPs.
    """

    verdict: ConditionState | None
    wait: float = 0.0
    is_run: bool = True


_Held = Mapping[Address, MasterState]


def look(case: Case, mastership: Mastership) -> Found:
    """The first objection over all VIPs, or their masters."""
    if case.ground.group is None or not case.vips:
        message = f"nothing is advertised: see {ConditionType.SERVICE_PROGRAMMED}"
        return Found(ConditionState("Unknown", Reason.UNKNOWN, message), is_run=False)
    held = {vip: mastership.held(vip) for vip in case.vips}
    is_run = all(each.is_run for each in held.values())
    for check in CHECKS:
        if found := check(held, mastership):
            return Found(found, is_run=is_run)
    if waits := [each.wait for each in held.values() if each.reason is None]:
        return Found(None, min(waits))
    return Found(ConditionState("True", Reason.MASTER, f"{_masters(held)}{_in_vain(case, mastership)}"))


def _one_each(held: _Held, mastership: Mastership) -> ConditionState | None:
    for vip, each in held.items():
        if each.reason == Reason.SPLIT_BRAIN:
            message = (
                f"{vip} is held by nodes {', '.join(each.nodes)} at once: they do not hear each other's VRRP packets; "
                f"look for a firewall or a switch between them{_noted(each.nodes, mastership)}"
            )
            return ConditionState("False", Reason.SPLIT_BRAIN, message)
    return None


def _some_each(held: _Held, mastership: Mastership) -> ConditionState | None:
    lost = [vip for vip, each in held.items() if each.reason == Reason.NO_MASTER]
    if not lost:
        return None
    return ConditionState("False", Reason.NO_MASTER, f"no node holds {_texts(lost)}{_faulty(lost[0], mastership)}")


def _faulty(vip: Address, mastership: Mastership) -> str:
    """Where keepalived cannot hold *vip*, and what is unusual there: mostly a health check fails."""
    nodes = mastership.faults(vip)
    if not nodes:
        return ""
    where = _noted(nodes, mastership, before="") or f"see the agents' {names.STATE_PATH}"
    return f"; keepalived is in FAULT on {few(nodes)}: {where}"


def _noted(nodes: Sequence[str], mastership: Mastership, *, before: str = "; ") -> str:
    """What is unusual on the first of *nodes* that notes something."""
    states = ((node, mastership.states.get(node)) for node in nodes)
    return next((f"{before}{node} says: {state.note}" for node, state in states if state and state.note), "")


def _known_each(held: _Held, _mastership: Mastership) -> ConditionState | None:
    unknown = {vip: each for vip, each in held.items() if each.reason == Reason.UNKNOWN}
    if not unknown:
        return None
    if away := [vip for vip, each in unknown.items() if not each.is_run]:
        message = f"no node runs an instance with {_texts(away)} yet: see {ConditionType.SERVICE_PROGRAMMED}"
        return ConditionState("Unknown", Reason.UNKNOWN, message)
    silent = sorted({node for each in unknown.values() for node in each.unheard})
    message = f"who holds {_texts(list(unknown))} is not known: no answer from the agents on {few(silent)}"
    return ConditionState("Unknown", Reason.UNKNOWN, message)


CHECKS: Final[tuple[Callable[[_Held, Mastership], ConditionState | None], ...]] = (_one_each, _some_each, _known_each)


def _in_vain(case: Case, mastership: Mastership) -> str:
    """That nobody answers on a VIP although a node has it: kube-proxy sends to endpoints of its own node only."""
    key = case.service.key
    tracks = {tracking.local_track(unit) for unit in (key, *(f"{key}/{vip}" for vip in case.vips))}
    if not case.service.is_local or any(tracks.isdisjoint(each.unready) for each in mastership.states.values()):
        return ""
    return f"{IN_VAIN}no node has a ready endpoint (externalTrafficPolicy: Local)"


def _masters(held: _Held) -> str:
    """The VIPs of each node: stable while nothing moves."""
    nodes: dict[str, list[Address]] = {}
    for vip, each in sorted(held.items()):
        nodes.setdefault(each.nodes[0], []).append(vip)
    told = [f"node {node} holds {_texts(vips)}" for node, vips in sorted(nodes.items())]
    rest = len(told) - _NAMED
    return "; ".join(told[:_NAMED]) + (f"; and {rest} more nodes hold the rest" if rest > 0 else "")


def _texts(vips: Sequence[Address]) -> str:
    return few([str(vip) for vip in vips])


# --- when it is told --------------------------------------------------------------------------------------------------
DOUBTED: Final = (Reason.NO_MASTER, Reason.UNKNOWN)
"""What is told only when it lasts."""


def doubt(reason: str, before: Unconfirmed | None, *, at: float) -> Unconfirmed:
    """Since when *reason* is so."""
    return before if before is not None and before.reason == reason else Unconfirmed(reason, at)


def doubt_of(service: Service, found: Found, before: Unconfirmed | None, *, at: float) -> Unconfirmed | None:
    """The doubt about *service*; None: there is none, or none that anything hangs on."""
    if found.verdict is None or found.verdict.reason not in DOUBTED or _is_early(service, found):
        return None
    return doubt(found.verdict.reason, before, at=at)


def patience(held: Unconfirmed | None, mastership: Mastership) -> float:
    """For how many seconds what is doubted is not told yet."""
    if held is None:
        return PATIENCE
    return max(0.0, held.since + (mastership.gap if held.reason == Reason.NO_MASTER else PATIENCE) - mastership.at)


def wait(service: Service, found: Found, held: Unconfirmed | None, mastership: Mastership) -> float:
    """In how many seconds *service* is to be looked at again; 0: when something happens."""
    if found.verdict is None:
        return found.wait
    return 0.0 if held is None or _stands(service, found.verdict) else patience(held, mastership)


def wait_for(held: MasterState, doubted: Unconfirmed | None, mastership: Mastership) -> float:
    """The same for an instance, or a VIP of the group itself."""
    return held.wait if doubted is None else patience(doubted, mastership)


def news_of(service: Service, found: Found, held: Unconfirmed | None, mastership: Mastership) -> ConditionState | None:
    """What is to be told now, whether or not it stands there already; None: leave what stands."""
    if found.verdict is None or _is_early(service, found):
        return None
    if found.verdict.reason not in DOUBTED or _stands(service, found.verdict):
        return found.verdict
    return None if patience(held, mastership) > 0 else found.verdict


def is_wrong(service: Service, verdict: ConditionState | None) -> bool:
    """Whether the condition of *service* says something else."""
    if verdict is None:
        return False
    told = _told(service)
    new = (verdict.status, verdict.reason, verdict.message, service.metadata.generation)
    return told is None or (told.status, told.reason, told.message, told.observed_generation) != new


def _is_early(service: Service, found: Found) -> bool:
    """The condition appears when it is known."""
    return found.verdict is not None and found.verdict.reason == Reason.UNKNOWN and _told(service) is None


def _stands(service: Service, verdict: ConditionState) -> bool:
    told = _told(service)
    return told is not None and told.reason == verdict.reason


def _told(service: Service) -> Condition | None:
    return conditions.find(service.status.conditions, ConditionType.ADVERTISED)
