"""Excluding instances: the rest is a whole configuration, and a kept instance conflicts with nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.agent.config import validate
from kavip.agent.config.blocks import block_at, joined, split
from kavip.agent.config.exclude import exclude, previous_instances
from kavip.agent.config.localize import localize, read_localized
from kavip.agent.config.model import InstanceFault, LocalizedConfig, RefusedConfig
from kavip.api.agent import ProblemCode
from kavip.api.group import Check
from tests.agent import mounts
from tests.agent.config.test_localize import facts, held
from tests.support.examples import examples

LINES = st.sampled_from(
    ["vrrp_instance a/b {", "vrrp_instance c {", "vrrp_instance {", "}", "    }", "    x y", "global_defs {", "", "#"]
)
SERVICES = {"shop/a": "192.0.2.130", "shop/b": "192.0.2.131,192.0.2.132", "shop/c": "192.0.2.133,2001:db8:2::133"}
GOOD = mounts.rendered(SERVICES)
BAD = "state ~BACKUP"


def localized(text: str, good: LocalizedConfig | None = None, **node: object) -> LocalizedConfig:
    """*text* localised on node n1, where *good* ran last."""
    found = localize(mounts.mounted(text), facts(**node), good)
    assert isinstance(found, LocalizedConfig), found
    return found


def spoilt(text: str, name: str = "shop/b", **changes: str) -> str:
    """*text* with a faulty line in the instance *name*; the values of *changes* are replacements in it, ``old>new``."""
    head, opening, rest = text.partition(f"vrrp_instance {name} {{\n")
    body, closing, tail = rest.partition("\n}\n")
    for each in changes.values():
        old, _, new = each.partition(">")
        assert old in body
        body = body.replace(old, new)
    return head + opening + body.replace("state BACKUP", BAD) + closing + tail


@given(st.lists(LINES, max_size=30))
def test_blocks_hold_every_line_of_the_text(lines: list[str]) -> None:
    """No line is lost, and :func:`block_at` finds each by its number."""
    text = "\n".join(lines)
    blocks = split(text)
    assert joined(blocks) == text
    for number, line in enumerate(text.split("\n"), start=1):
        block = block_at(blocks, number)
        assert block is not None and block.lines[number - block.first] == line


@examples(20)
@given(st.sets(st.sampled_from(["shop/a", "shop/b", "shop/c", "shop/c/v6"])), st.booleans())
def test_the_rest_is_a_whole_configuration(names: set[str], with_spares: bool) -> None:
    """The text without some instances is valid, and holds what the values say."""
    good = localized(GOOD)
    spares = previous_instances(good if with_spares else None, facts())
    found = exclude(good, {name: InstanceFault(ProblemCode.CONFIG_INVALID, "x") for name in names}, spares)
    if len(names) == 4:
        assert isinstance(found, RefusedConfig)
        return
    assert isinstance(found, LocalizedConfig)
    assert validate.read(found.text) == found.configuration
    assert read_localized(found.text) is not None
    assert {each.name for each in found.excluded} == names
    left = {each.name for each in good.configuration.instances} - (set() if with_spares else names)
    assert {each.name for each in found.configuration.instances} == left


def test_a_faulty_instance_is_kept_as_it_last_ran() -> None:
    """Other instances take their changes meanwhile."""
    text = spoilt(GOOD).replace("advert_int 0.2", "advert_int 0.3")
    found = localized(text, localized(GOOD))
    assert [(each.name, each.kept) for each in found.excluded] == [("shop/b", True)]
    assert found.config_hash == mounts.hash_of(text)
    assert [each.name for each in found.configuration.instances] == ["shop/a", "shop/b", "shop/c", "shop/c/v6"]
    intervals = {each.name: "advert_int 0.2" in each.text for each in split(found.text) if each.name}
    assert intervals == {"shop/a": False, "shop/b": True, "shop/c": False, "shop/c/v6": False}
    assert BAD not in found.text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("virtual_router_id 27>virtual_router_id 99", "another VRID"),
        ("interface eth0>interface eth1", "another interface"),
        ("192.0.2.132/32>192.0.2.140/32", "an address that it has no more"),
    ],
)
def test_an_instance_with_another_identity_is_not_kept(change: str, why: str) -> None:
    """Another instance may use its old VRID, interface or address by now."""
    found = localized(spoilt(GOOD, change=change), localized(GOOD), interfaces=frozenset({"eth0", "eth1"}))
    assert [(each.name, each.kept) for each in found.excluded] == [("shop/b", False)], why


@pytest.mark.parametrize(
    "change", ["192.0.2.130/32>192.0.2.131/32", "virtual_router_id 26>virtual_router_id 27"], ids=["address", "VRID"]
)
def test_an_instance_that_conflicts_is_not_kept(change: str) -> None:
    """Another instance has its VRID or address now, even if the faulty text still claims it."""
    old, _, new = change.partition(">")
    assert old in GOOD
    moved = GOOD.replace(old, new)
    found = localized(spoilt(moved), localized(GOOD))
    assert {each.name: each.kept for each in found.excluded} == {"shop/b": False}
    assert "shop/a" in {each.name for each in found.configuration.instances}


def test_an_instance_with_an_address_of_the_node_is_not_kept() -> None:
    """keepalived would delete the address from the node."""
    own = (*facts().held, held("192.0.2.131/24", "eth0"))
    found = localized(spoilt(GOOD), localized(GOOD), held=own)
    assert [(each.name, each.kept) for each in found.excluded] == [("shop/b", False)]
    assert "192.0.2.131" not in found.text


CHECKED = mounts.rendered(SERVICES, checks=[Check(name="a", url="kubelet"), Check(name="b", url="kubelet")])
ONE_LESS = mounts.rendered(SERVICES, checks=[Check(name="b", url="kubelet")])


def test_a_kept_instance_follows_defined_track_files_only() -> None:
    """keepalived would refuse an instance that follows an undefined one."""
    good = localized(CHECKED)
    found = localized(spoilt(ONE_LESS), good)
    (excluded,) = found.excluded
    assert excluded.kept
    assert [track.name for each in found.configuration.instances for track in each.tracks] == ["check-b"] * 4
    assert read_localized(found.text) == LocalizedConfig(found.text, found.config_hash, found.configuration)


def test_an_instance_with_tracks_can_be_excluded() -> None:
    """The other instances and the definitions of track files stay as they are."""
    found = localized(spoilt(CHECKED))
    assert [each.name for each in found.configuration.instances] == ["shop/a", "shop/c", "shop/c/v6"]
    assert read_localized(found.text) == LocalizedConfig(found.text, found.config_hash, found.configuration)
