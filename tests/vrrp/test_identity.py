"""What all nodes must agree on is read back from the text that runs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.group import PasswordAuth, SecretRef
from kavip.vrrp import config
from kavip.vrrp.identity import agree, identities_of, identity_of
from tests.support import build
from tests.vrrp.samples import NEW, annotated, model, nodes, shared

SERVICES = [annotated("a/web", "192.0.2.130", "192.0.2.131", "2001:db8::1"), annotated("b/one", "192.0.2.9")]
PASSWORD = PasswordAuth(secret_ref=SecretRef(name="vrrp"))
GROUPS = {
    "as new groups are": NEW,
    "as keepalived-operator had it": {"password_auth": PASSWORD},
    "Shared": {**NEW, "instances": shared(3)},
    "other interfaces": {"vrrp_interface": "eth1", "advert_interval_milliseconds": 3000},
}


@pytest.mark.parametrize("spec", GROUPS.values(), ids=GROUPS)
def test_a_text_says_what_runs(spec: dict[str, Any]) -> None:
    """Whatever the group, its text gives back each instance's identity and its VIPs."""
    wanted = model(build.group(**spec), SERVICES, nodes(2))
    found = identities_of(config.render(wanted).text)
    assert {name: each.identity for name, each in found.items()} == {
        each.name: identity_of(each) for each in wanted.instances
    }
    held = [str(vip.address) for each in found.values() for vip in each.virtual_ips]
    assert sorted(held) == ["192.0.2.130", "192.0.2.131", "192.0.2.9", "2001:db8::1"]


CHANGES = {
    "unicast_enabled": False,
    "vrrp_version": 2,
    "interface": "eth1",
    "vrrp_interface": "eth1",
}


@pytest.mark.parametrize("field", CHANGES)
def test_nodes_that_differ_do_not_agree(field: str) -> None:
    """Each of these makes two masters where one node has it and another has not."""
    one, other = (
        identity_of(model(build.group(**spec), SERVICES, nodes(2)).instances[0])
        for spec in (NEW, {**NEW, field: CHANGES[field]})
    )
    assert not agree(one, other)
    assert agree(one, one)


@pytest.mark.parametrize("version", [2, 3])
def test_nodes_with_different_intervals_do_not_agree(version: int) -> None:
    """In version 3 too: a backup that has been told a shorter one does not wait for the master's next advert."""
    one, other = (
        identity_of(
            model(
                build.group(vrrp_version=version, advert_interval_milliseconds=interval), SERVICES, nodes(2)
            ).instances[0]
        )
        for interval in (1000, 2000)
    )
    assert not agree(one, other)


@given(st.text(alphabet="vrp_instace {}\n1.:/ @#dev", max_size=300))
def test_any_text_can_be_asked(text: str) -> None:
    """A text that kavip did not write has none, and no text does harm."""
    assert not identities_of(text)
