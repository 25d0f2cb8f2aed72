"""A password that is replaced in place: the text stays the same, and all nodes switch to the new password at once."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from kavip.api.group import PasswordAuth, SecretRef
from kavip.api.instant import instant_text
from kavip.reconcile.observed.agentstates import AgentStates, Contact
from kavip.reconcile.rollout import readiness
from kavip.reconcile.rollout.peers import PATIENCE
from tests.reconcile.rollout.switchingnodes import SECRET, Site
from tests.reconcile.simulatedcluster import GROUP, NOW


def test_a_password_that_is_replaced_in_place() -> None:
    """The text stays the same. The switch waits for a node without the new password, up to kubelet's longest delay."""
    site = Site.of(**SECRET)
    states = {name: site.simulation.agents.states_of(GROUP)[name] for name in ("n1", "n2")}
    seen = instant_text(site.simulation.now)
    fresh = replace(states["n1"], new_password=seen, drift=0.0)
    site.simulation.agents = site.simulation.agents.with_state(GROUP, "n1", state=fresh)
    site.simulation.group()
    found = site.published
    assert found.next and found.next.renewed
    assert found.next.text == found.current.text
    assert site.simulation.objects.configmaps[GROUP].binary_data is None
    reported: dict[str, dict[str, Any]] = {"n1": {"new_password": seen}, "n2": {}}
    for name, more in reported.items():
        state = replace(states[name], prepared=found.next.digest, drift=0.0, **more)
        site.simulation.agents = site.simulation.agents.with_state(GROUP, name, state=state)
    site.simulation.group()
    assert "waits for node n2: the new password is not mounted there yet" in site.message
    site.simulation.later(readiness.RENEWED_AFTER / 2)
    assert site.simulation.group().requeue_after == readiness.RENEWED_AFTER / 2, "no event ends it"
    site.simulation.later(readiness.RENEWED_AFTER / 2)
    site.simulation.group()
    assert site.published.switch_at
    assert (found.current.settings.renewals, found.next.settings.renewals) == (0, 1)
    for name in ("n1", "n2"):
        state = replace(states[name], prepared=found.next.digest, drift=0.0, switch_at=instant_text(site.switch_at))
        site.simulation.agents = site.simulation.agents.with_state(GROUP, name, state=state)
    site.simulation.now = site.switch_at + timedelta(seconds=2)
    site.simulation.group()
    site.simulation.group()
    assert (site.published.next, site.published.current.settings.renewals) == (None, 1)


def test_a_silent_node_starts_no_switch_for_its_password() -> None:
    """It may have answered before a switch that it missed, so it starts no new switch."""
    site = Site.of(**SECRET)
    state = replace(site.simulation.agents.states_of(GROUP)["n1"], new_password=instant_text(site.simulation.now))
    site.simulation.agents = site.simulation.agents.with_state(GROUP, "n1", state=state)
    site.simulation.group()
    assert site.published.next
    site.simulation.agents = site.simulation.agents.with_contact(GROUP, "n1", contact=Contact(is_silent=True))
    site.simulation.group()
    assert site.published.next is None


def with_a_new_leader() -> Site:
    """All nodes prepare a new password, and the controller has not heard any of them yet."""
    site = Site.of(**SECRET)
    simulation = site.simulation
    state = replace(simulation.agents.states_of(GROUP)["n1"], new_password=instant_text(simulation.now))
    simulation.agents = simulation.agents.with_state(GROUP, "n1", state=state)
    simulation.group()
    assert site.published.next and site.published.next.renewed
    simulation.agents = AgentStates(since=(simulation.now - NOW).total_seconds())
    return site


def test_a_new_leader_does_not_withdraw_a_new_password_that_it_has_not_heard_of() -> None:
    """The agents will tell it; if none does so after a while, the Secret was changed back."""
    site = with_a_new_leader()
    simulation, before = site.simulation, site.published
    simulation.group()
    assert site.published == before
    simulation.later(PATIENCE + 1)
    simulation.group()
    assert site.published.next is None


def test_a_new_leader_renews_no_other_password() -> None:
    """The group names another key by now: all nodes change to that, and nothing is renewed."""
    site = with_a_new_leader()
    password = PasswordAuth(secret_ref=SecretRef(name="vrrp"), secret_key="two")
    site.edit(**{**SECRET, "password_auth": password})
    site.simulation.group()
    assert site.published.next and site.published.next.settings.secret_key == "two"
    assert not site.published.next.renewed
