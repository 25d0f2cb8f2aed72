"""Taking instances out of a configuration: what stays is whole, and what runs on in their place harms nobody."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kavip.agent.config import validate
from kavip.agent.config.blocks import at, joined, split
from kavip.agent.config.exclude import spares_of, without
from kavip.agent.config.localize import localize, recalled
from kavip.agent.config.model import Fault, Localized, Refused
from kavip.api.group import Check
from tests.agent import scene
from tests.agent.config.test_localize import facts, held

LINES = st.sampled_from(
    ["vrrp_instance a/b {", "vrrp_instance c {", "vrrp_instance {", "}", "    }", "    x y", "global_defs {", "", "#"]
)
SERVICES = {"shop/a": "192.0.2.130", "shop/b": "192.0.2.131,192.0.2.132", "shop/c": "192.0.2.133,2001:db8:2::133"}
GOOD = scene.rendered(SERVICES)
BAD = "state ~BACKUP"


def localized(text: str, good: Localized | None = None, **node: object) -> Localized:
    """*text* on node n1, which ran *good* before."""
    found = localize(scene.mounted(text), facts(**node), good)
    assert isinstance(found, Localized), found
    return found


def spoilt(text: str, name: str = "shop/b", **changes: str) -> str:
    """*text* with a bad line in the instance *name*, in which *changes* are made by their values, ``old>new``."""
    head, opening, rest = text.partition(f"vrrp_instance {name} {{\n")
    body, closing, tail = rest.partition("\n}\n")
    for each in changes.values():
        old, _, new = each.partition(">")
        assert old in body
        body = body.replace(old, new)
    return head + opening + body.replace("state BACKUP", BAD) + closing + tail


@given(st.lists(LINES, max_size=30))
def test_blocks_are_all_of_the_text(lines: list[str]) -> None:
    """Nothing is lost, whatever it looks like, and every line is in the block that its number says."""
    text = "\n".join(lines)
    blocks = split(text)
    assert joined(blocks) == text
    for number, line in enumerate(text.split("\n"), start=1):
        block = at(blocks, number)
        assert block is not None and block.lines[number - block.first] == line


@settings(max_examples=20)
@given(st.sets(st.sampled_from(["shop/a", "shop/b", "shop/c", "shop/c/v6"])), st.booleans())
def test_what_stays_is_a_whole_configuration(names: set[str], with_spares: bool) -> None:
    """It is read without a fault, and says the same as what is known of it."""
    good = localized(GOOD)
    spares = spares_of(good if with_spares else None, facts())
    found = without(good, {name: Fault("x") for name in names}, spares)
    if len(names) == 4:
        assert isinstance(found, Refused)
        return
    assert isinstance(found, Localized)
    assert validate.read(found.text) == found.configuration
    assert recalled(found.text) is not None
    assert {each.name for each in found.left_out} == names
    left = {each.name for each in good.configuration.instances} - (set() if with_spares else names)
    assert {each.name for each in found.configuration.instances} == left


def test_an_instance_runs_on_as_it_was() -> None:
    """Where only its lines are wrong: the neighbours take their changes, it keeps its own."""
    text = spoilt(GOOD).replace("advert_int 0.2", "advert_int 0.3")
    found = localized(text, localized(GOOD))
    assert [(each.name, each.kept) for each in found.left_out] == [("shop/b", True)]
    assert found.config_hash == scene.hash_of(text)
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
def test_an_instance_that_ought_to_be_another_does_not_run_on(change: str, why: str) -> None:
    """What it had may be somebody else's by now."""
    found = localized(spoilt(GOOD, change=change), localized(GOOD), interfaces=frozenset({"eth0", "eth1"}))
    assert [(each.name, each.kept) for each in found.left_out] == [("shop/b", False)], why


@pytest.mark.parametrize(
    "change", ["192.0.2.130/32>192.0.2.131/32", "virtual_router_id 26>virtual_router_id 27"], ids=["address", "VRID"]
)
def test_what_a_neighbour_has_now_is_not_taken_back(change: str) -> None:
    """Though the refused instance, as far as it can be read, claims it still."""
    old, _, new = change.partition(">")
    assert old in GOOD
    moved = GOOD.replace(old, new)
    found = localized(spoilt(moved), localized(GOOD))
    assert {each.name: each.kept for each in found.left_out} == {"shop/b": False}
    assert "shop/a" in {each.name for each in found.configuration.instances}


def test_what_has_become_the_nodes_own_does_not_run_on() -> None:
    """The daemon would take the address from the node."""
    own = (*facts().held, held("192.0.2.131/24", "eth0"))
    found = localized(spoilt(GOOD), localized(GOOD), held=own)
    assert [(each.name, each.kept) for each in found.left_out] == [("shop/b", False)]
    assert "192.0.2.131" not in found.text


CHECKED = scene.rendered(SERVICES, checks=[Check(name="a", url="kubelet"), Check(name="b", url="kubelet")])
ONE_LESS = scene.rendered(SERVICES, checks=[Check(name="b", url="kubelet")])


def test_what_runs_on_follows_what_there_is() -> None:
    """An instance that is kept as it ran follows the track files that are still defined, and no other."""
    good = localized(CHECKED)
    found = localized(spoilt(ONE_LESS), good)
    (left_out,) = found.left_out
    assert left_out.kept
    assert [track.name for each in found.configuration.instances for track in each.tracks] == ["check-b"] * 4
    assert recalled(found.text) == Localized(found.text, found.config_hash, found.configuration)


def test_an_instance_with_tracks_can_be_left_out() -> None:
    """The others stay as they are; the definitions of its files do no harm."""
    found = localized(spoilt(CHECKED))
    assert [each.name for each in found.configuration.instances] == ["shop/a", "shop/c", "shop/c/v6"]
    assert recalled(found.text) == Localized(found.text, found.config_hash, found.configuration)
