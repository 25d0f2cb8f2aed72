"""
When a changed condition is written, and how often one Service is written.

* ``Programmed``: a changed reason is written at once. A message that only counts nodes would change with every node of
  a roll-out, so it is written after :data:`COUNT_AFTER` seconds and then ever more rarely.
* ``Advertised``: a master is written as soon as it is known. That there is none, that it is unknown, or that it has no
  endpoint, is written only if it lasts: most fail-overs, and most restarts of pods, are over before.
* :class:`WriteBudget`: what agents report may change as often as they are asked. A node that flaps, or lies, would have
  all Services of its group written each time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from kavip.api import conditions
from kavip.api.meta import Condition
from kavip.api.service import Service
from kavip.names import ConditionType, Reason
from kavip.reconcile.observed.mastership import Mastership, MasterState
from kavip.reconcile.plan import ConditionChange, ConditionState, GroupRecord, Unconfirmed, age
from kavip.reconcile.service.advertised import AdvertisedState

COUNT_AFTER: Final = 10.0
"""Seconds after which the message of a pending Service is updated."""
UNKNOWN_AFTER: Final = 10.0
"""Seconds for which agents may be silent, and a configuration on its way, before the master counts as unknown."""
_RAREST: Final = 3600.0


def stored_condition(service: Service, kind: ConditionType) -> Condition | None:
    """The condition of type *kind* in the status of *service*."""
    return conditions.find(service.status.conditions, kind)


# --- Programmed -------------------------------------------------------------------------------------------------------
def programmed_change(service: Service, state: ConditionState, record: GroupRecord) -> ConditionChange:
    """How the stored ``Programmed`` differs from *state*; another count of nodes is no change."""
    change = state.change(stored_condition(service, ConditionType.SERVICE_PROGRAMMED), service.metadata)
    is_count = state.is_progress and service.key not in record.obstructed
    return ConditionChange.NONE if change is ConditionChange.MESSAGE and is_count else change


def is_programmed_due(
    service: Service, state: ConditionState, record: GroupRecord, *, now: datetime, probed_from: datetime
) -> bool:
    """
    Whether ``Programmed`` is written as *state* now.

    *probed_from*: when the agents were first asked. Right after a start they have not answered, so the previous count
    is better than a new one.
    """
    stored = stored_condition(service, ConditionType.SERVICE_PROGRAMMED)
    if stored is None or programmed_change(service, state, record) is not ConditionChange.NONE:
        return True
    return stored.message != state.message and _unchanged_for(stored, now, probed_from) >= COUNT_AFTER


def next_count(service: Service, state: ConditionState, *, now: datetime, probed_from: datetime) -> float | None:
    """After how many seconds a pending Service is reconciled again: ever more rarely; None: it is not pending."""
    if state.reason != Reason.PENDING:
        return None
    stored = stored_condition(service, ConditionType.SERVICE_PROGRAMMED)
    unchanged = _unchanged_for(stored, now, probed_from) if stored and stored.status == state.status else 0.0
    return min(max(COUNT_AFTER - unchanged if unchanged < COUNT_AFTER else unchanged, 1.0), _RAREST)


def _unchanged_for(stored: Condition, now: datetime, probed_from: datetime) -> float:
    """The seconds for which the condition has had its status and this controller has asked the agents."""
    return min(age(stored.last_transition_time or "", now), (now - probed_from).total_seconds())


# --- Advertised -------------------------------------------------------------------------------------------------------
UNCERTAIN: Final = (Reason.NO_MASTER, Reason.UNKNOWN, Reason.NO_ENDPOINTS, Reason.ENDPOINTS_OUTSIDE_GROUP)
"""The reasons that are written only if they last; the last two last as one."""


def unconfirmed(reason: str, before: Unconfirmed | None, *, at: float) -> Unconfirmed:
    """*reason*, and since when it holds."""
    return before if before is not None and before.reason == reason else Unconfirmed(reason, at)


def unconfirmed_of(
    service: Service, found: AdvertisedState, before: Unconfirmed | None, *, at: float
) -> Unconfirmed | None:
    """The uncertain reason of *service*; None: it has none, or its first condition waits for a certain one."""
    if found.state is None or found.state.reason not in UNCERTAIN or _is_premature(service, found):
        return None
    is_idle = found.state.reason == Reason.ENDPOINTS_OUTSIDE_GROUP
    return unconfirmed(Reason.NO_ENDPOINTS if is_idle else found.state.reason, before, at=at)


def seconds_to_confirm(held: Unconfirmed | None, mastership: Mastership) -> float:
    """The seconds that an uncertain reason has still to last."""
    if held is None:
        return UNKNOWN_AFTER
    lasting = mastership.gap if held.reason == Reason.NO_MASTER else UNKNOWN_AFTER
    return max(0.0, held.since + lasting - mastership.at)


def next_confirmation(
    service: Service, found: AdvertisedState, held: Unconfirmed | None, mastership: Mastership
) -> float:
    """After how many seconds *service* is evaluated again; 0: when something happens."""
    if found.state is None:
        return found.wait
    return 0.0 if held is None or _has_reason(service, found.state) else seconds_to_confirm(held, mastership)


def next_master_check(master: MasterState, held: Unconfirmed | None, mastership: Mastership) -> float:
    """The same for an instance, or a VIP of the group itself."""
    return master.wait if held is None else seconds_to_confirm(held, mastership)


def confirmed_state(
    service: Service, found: AdvertisedState, held: Unconfirmed | None, mastership: Mastership
) -> ConditionState | None:
    """``Advertised`` as it should be stored now; None: the stored one stays."""
    state = found.state
    if state is None or _is_premature(service, found):
        return None
    if state.reason not in UNCERTAIN or _has_reason(service, state):
        return state
    return None if seconds_to_confirm(held, mastership) > 0 else state


def advertised_change(service: Service, state: ConditionState | None) -> ConditionChange:
    """How the stored ``Advertised`` differs from *state*; None: it stays."""
    if state is None:
        return ConditionChange.NONE
    return state.change(stored_condition(service, ConditionType.ADVERTISED), service.metadata)


def _is_premature(service: Service, found: AdvertisedState) -> bool:
    """The condition is added when the master is known, or a node runs the VIPs and none is master."""
    if stored_condition(service, ConditionType.ADVERTISED) is not None or found.state is None:
        return False
    return found.state.reason == Reason.UNKNOWN or (found.state.reason == Reason.NO_MASTER and not found.is_run)


def _has_reason(service: Service, state: ConditionState) -> bool:
    stored = stored_condition(service, ConditionType.ADVERTISED)
    return stored is not None and stored.reason == state.reason


# --- messages ---------------------------------------------------------------------------------------------------------
def is_rewording(service: Service, states: Mapping[ConditionType, ConditionState]) -> bool:
    """Whether *states*, of which there are some, differ from the stored conditions in nothing but messages."""
    changes = {state.change(stored_condition(service, kind), service.metadata) for kind, state in states.items()}
    return changes == {ConditionChange.MESSAGE}


# --- the number of writes ---------------------------------------------------------------------------------------------
BURST: Final = 10
"""Status writes of one Service that go at once."""
INTERVAL: Final = 15.0
"""Seconds between the writes after that. An edit of the Service itself is answered at once."""

_FEW: Final = 1024


@dataclass(frozen=True, slots=True)
class _Spent:
    """*wait* seconds, from *at* on, until the whole burst is available; *edit* stands for what users wrote."""

    wait: float
    at: float
    edit: int

    def left(self, now: float) -> float:
        """What is left of the wait."""
        return max(0.0, self.wait - (now - self.at))


class WriteBudget:
    """
    Limits the status writes of each Service; :class:`kavip.controller.worker.Worker` keeps one. Times are monotonic.
    """

    def __init__(self) -> None:
        """Start without writes."""
        self._spent: dict[str, _Spent] = {}
        self._most = _FEW

    def __len__(self) -> int:
        """Count the Services that are remembered."""
        return len(self._spent)

    def spend(self, service: Service, *, now: float) -> None:
        """Record a write of *service*."""
        before = self._spent.get(service.key)
        wait = INTERVAL + (before.left(now) if before else 0.0)
        self._spent[service.key] = _Spent(min(wait, INTERVAL * BURST), now, _edit(service))
        if len(self._spent) > self._most:
            self._spent = {key: each for key, each in self._spent.items() if each.left(now)}
            self._most = max(_FEW, 2 * len(self._spent))

    def delay(self, service: Service, *, now: float) -> float:
        """The seconds until *service* may be written again; 0: now."""
        spent = self._spent.get(service.key)
        left = spent.left(now) - INTERVAL * (BURST - 1) if spent else 0.0
        return left if left > 0 and spent and spent.edit == _edit(service) else 0.0

    def forget(self, key: str) -> None:
        """Forget the Service *key*, which is gone."""
        self._spent.pop(key, None)


def _edit(service: Service) -> int:
    """A number that an edit of *service* by users changes, and a write of its status does not."""
    metadata = service.metadata
    return hash(msgspec.json.encode((service.spec, metadata.annotations, metadata.labels, metadata.deletion_timestamp)))
