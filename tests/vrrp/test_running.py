"""A published text is read back: the instances that it makes nodes run, with their identities and VIPs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.group import PasswordAuth, SecretRef
from kavip.memo import Memory
from kavip.vrrp import config
from kavip.vrrp.identity import identity_of
from kavip.vrrp.running import running_instances, running_nodes
from tests.support import build
from tests.vrrp.samples import NEW, annotated, conf, model, nodes, shared

SERVICES = [annotated("a/web", "192.0.2.130", "192.0.2.131", "2001:db8::1"), annotated("b/one", "192.0.2.9")]
GROUPS = {
    "a new group": NEW,
    "a group of keepalived-operator": {"password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"))},
    "Shared mode": {**NEW, "instances": shared(3)},
    "other interfaces": {"vrrp_interface": "eth1", "advert_interval_milliseconds": 3000},
}


@pytest.mark.parametrize("spec", GROUPS.values(), ids=GROUPS)
def test_a_text_gives_back_its_instances(spec: dict[str, Any]) -> None:
    """The text of any group gives back the identity of each instance and its VIPs."""
    wanted = model(build.group(**spec), SERVICES, nodes(2))
    found = running_instances(config.render(wanted).text)
    assert {name: each.identity for name, each in found.items()} == {
        each.name: identity_of(each) for each in wanted.instances
    }
    held = [str(vip.address) for each in found.values() for vip in each.virtual_ips]
    assert sorted(held) == ["192.0.2.130", "192.0.2.131", "192.0.2.9", "2001:db8::1"]


def test_blocks_that_stay_are_not_read_again() -> None:
    """With a memory, an instance whose block is the same in the next text is the same object."""
    memory, group = Memory(), build.group(**NEW)
    before = running_instances(conf(group, SERVICES, nodes(2)), memory)
    after = running_instances(conf(group, [*SERVICES, annotated("c/new", "192.0.2.10")], nodes(2)), memory)
    assert before.keys() < after.keys()
    assert all(after[name] is run for name, run in before.items())
    assert after == running_instances(conf(group, [*SERVICES, annotated("c/new", "192.0.2.10")], nodes(2)))


@given(st.text(alphabet="vrp_instace {}\n1.:/ @#dev", max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    """A text that kavip did not write has no instances, and reading it does not raise."""
    assert not running_instances(text)
    running_nodes(text)
