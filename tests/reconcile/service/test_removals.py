"""Addresses that another controller removes from a status or overwrites: kavip restores them, but limits the fight."""

from datetime import timedelta

import msgspec
import pytest

from kavip import names
from kavip.api.meta import Condition
from kavip.api.service import Ingress, LoadBalancer, Service, ServiceStatus
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.records import Records
from kavip.reconcile.plan import ServicePlan
from kavip.reconcile.service import allocation
from kavip.reconcile.service.reconcile import plan_service
from tests.reconcile.service.planning import ASSIGNED, WEB, conditions_of, web
from tests.reconcile.simulatedcluster import NOW, body_of, cluster
from tests.support import build

GIVEN = "192.0.2.140"
WORDS = f"{GIVEN} from pool edge"


def spoken(reason: str = "Assigned", words: str = WORDS, status: str = "True", *, holds: str = "") -> Service:
    """The Service with kavip's record of an address in its condition, and with *holds* in its status."""
    condition = Condition(type=ASSIGNED, status=status, reason=reason, message=words)
    balancer = LoadBalancer(ingress=[Ingress(ip=holds)] if holds else None)
    return msgspec.structs.replace(web(), status=ServiceStatus(load_balancer=balancer, conditions=[condition]))


def planned(subject: Service, *others: Service, records: Records | None = None, after: float = 0.0) -> ServicePlan:
    """The plan of *subject* at *after* seconds; its memory is kept."""
    memory = records or Records()
    snapshot = cluster(subject, *others, build.group(), build.pool())
    plan = plan_service(snapshot, WEB, now=NOW + timedelta(seconds=after), observed=Observed(records=memory))
    if plan.removal:
        memory.removals[WEB] = plan.removal
    return plan


def written_addresses(plan: ServicePlan) -> list[str]:
    """The addresses that the plan writes."""
    return [entry["ip"] for entry in body_of(plan).get("loadBalancer", {}).get("ingress") or []]


def test_a_removed_address_is_restored_at_once() -> None:
    """
    The Service gets the same address, although a lower one is free. An address with another holder is not restored.
    """
    assert written_addresses(planned(spoken())) == [GIVEN]
    assert written_addresses(planned(spoken("Stranded", f"keeps {GIVEN}, although it is late"))) == [GIVEN]
    assert written_addresses(planned(spoken(), build.service("shop/heir", holds=[GIVEN]))) == ["192.0.2.128"]
    assert written_addresses(planned(spoken(words=""))) == ["192.0.2.128"]


def test_repeated_removals_are_restored_at_growing_intervals() -> None:
    """Between two writes the condition names the other controller, and nothing is written."""
    memory, moment, rests = Records(), 0.0, []
    assert written_addresses(planned(spoken(), records=memory)) == [GIVEN]
    for _ in range(12):
        silent = planned(spoken(), records=memory, after=moment)
        assert conditions_of(silent)[ASSIGNED] == ("False", "ForeignStatus")
        assert written_addresses(silent) == []
        assert silent.claims is None
        found = memory.removals[WEB]
        rests.append(allocation.seconds_until_rewrite(found, NOW + timedelta(seconds=moment)))
        assert 0 < (silent.requeue_after or 0) <= rests[-1]
        moment += rests[-1]
        words = allocation.removed_state(found)
        again = planned(spoken(words.reason, words.message, "False"), records=memory, after=moment)
        assert written_addresses(again) == [GIVEN]
    assert rests[:4] == [1.0, 2.0, 4.0, 8.0]
    assert rests[-1] == allocation.LONGEST
    late = planned(spoken(), records=memory, after=moment + allocation.LONGEST + allocation.FORGOTTEN + 1)
    assert (written_addresses(late), memory.removals[WEB].times) == ([GIVEN], 1)


def test_a_service_whose_type_changed_back_is_served_at_once() -> None:
    """Without kavip's condition nothing counts as removed."""
    memory = Records()
    planned(spoken(), records=memory)
    assert written_addresses(planned(web(), records=memory)) == ["192.0.2.128"]


@pytest.mark.parametrize("reason", ["Assigned", "Stranded"])
def test_an_overwritten_address_is_foreign(reason: str) -> None:
    """
    kavip's record names another address, so the address in status stays, even when the Service is no longer managed.
    """
    found = planned(spoken(reason, holds="203.0.113.9"))
    assert conditions_of(found)[ASSIGNED] == ("True", "ForeignStatus")
    assert found.claims is None
    leaving = spoken(reason, holds="203.0.113.9")
    notes = {key: text for key, text in (leaving.metadata.annotations or {}).items() if key != names.GROUP_ANNOTATION}
    leaving = msgspec.structs.replace(leaving, metadata=msgspec.structs.replace(leaving.metadata, annotations=notes))
    assert "loadBalancer" not in body_of(plan_service(cluster(leaving, build.pool()), WEB, now=NOW))


def test_an_address_of_kavip_without_a_pool_is_stranded() -> None:
    """kavip's record names the address, so it is not foreign."""
    found = planned(spoken(words="203.0.113.9 from pool gone", holds="203.0.113.9"))
    assert conditions_of(found)[ASSIGNED] == ("True", "Stranded")
