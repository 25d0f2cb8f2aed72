"""
Inputs that were tried on keepalived 2.2.7, each in one of three lists (``cases/inputs.yaml``).

Either a user can write the input, and kavip accepts what is safe, whatever keepalived does; or only kavip writes that
keyword; or no user can write it.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import yaml

from kavip.agent.config.facts import InterfaceAddress, NodeFacts
from kavip.agent.config.localize import PASSWORD, localize
from kavip.agent.config.model import LocalizedConfig
from kavip.api.group import GroupSpec, GroupStatus, GroupVirtualIP, KeepalivedGroup
from kavip.names import Reason
from kavip.vrrp import groupspec, keywords, routerids, verbatim
from kavip.vrrp.virtualips import VirtualIP
from tests.agent.mounts import mounted
from tests.support import build
from tests.vrrp.samples import NEW, annotated, conf, nodes
from tests.vrrp.triedinputs import CASES, LISTS, TEXT

TRIED = 197


# --- the lists -----------------------------------------------------------------------------------------------------
def test_lists_are_complete_and_disjoint() -> None:
    """Each input that was tried is in one list, once."""
    names = [name for each in LISTS.values() for name in each]
    assert len(CASES) == TRIED
    assert sorted(names) == sorted(CASES)
    assert list(LISTS) == ["inputs", "written", "unreachable"]
    tree = yaml.compose(TEXT)
    assert tree is not None
    entries = [node for _, block in tree.value for node, _ in block.value]
    assert len(entries) == TRIED  # YAML accepts a key that occurs twice


def test_keepalived_accepts_unsafe_inputs() -> None:
    """Many unsafe inputs pass keepalived's own test with exit status 0, so kavip does not rely on it."""
    assert sum(not case["should_validator_accept"] and case["exit_code"] == 0 for case in CASES.values()) > 40


# --- inputs of kavip -----------------------------------------------------------------------------------------------
def accepts_service(lines: dict[str, str]) -> bool:
    """A Service's verbatimconfig, in a group on eth0 and eth1."""
    return not verbatim.read_service(json.dumps(lines), interfaces=("eth0", "eth1")).refusals


def accepts_global(lines: dict[str, str]) -> bool:
    """A group's verbatimConfig, without allowScripts."""
    return not verbatim.read_global(lines, allow_scripts=False).refusals


def accepts_group(spec: dict[str, Any]) -> bool:
    """Fields of a group."""
    return not groupspec.check_group(KeepalivedGroup(spec=msgspec.convert({"interface": "eth0", **spec}, GroupSpec)))


def accepts_interface(name: str) -> bool:
    """A group's interface."""
    return accepts_group({"interface": name})


def accepts_node(name: str) -> bool:
    """A group's interface, on a node that has only eth0: the interfaces of a node are checked on the node."""
    text = conf(build.group(**{**NEW, "interface": name}), [annotated("a/b", "192.0.2.130")], nodes(1))
    held = tuple(InterfaceAddress(VirtualIP(each, 24, "eth0")) for each in (nodes(1)[0].ipv4, nodes(1)[0].ipv6) if each)
    local = localize(mounted(text), NodeFacts("n1", interfaces=frozenset({"eth0"}), held=held))
    return isinstance(local, LocalizedConfig) and not local.excluded


def accepts_virtual_ips(addresses: list[str]) -> bool:
    """A group's own VIPs."""
    listed = [GroupVirtualIP(address=text) for text in addresses]
    return not groupspec.check_group(KeepalivedGroup(spec=GroupSpec(interface="eth0", virtual_ips=listed)))


def accepts_password(text: str) -> bool:
    """The password in a group's Secret."""
    return PASSWORD.fullmatch(text) is not None


JUDGES: dict[str, Callable[[Any], bool]] = {
    "service": accepts_service,
    "global": accepts_global,
    "group": accepts_group,
    "interface": accepts_interface,
    "node": accepts_node,
    "virtual_ips": accepts_virtual_ips,
    "password": accepts_password,
}


@pytest.mark.parametrize("name", LISTS["inputs"])
def test_input(name: str) -> None:
    """kavip accepts what is safe, whatever keepalived accepts."""
    entry = dict(LISTS["inputs"][name])
    reason = entry.pop("facts", "")
    ((judge, value),) = entry.items()
    assert JUDGES[judge](value) is (CASES[name]["should_validator_accept"] is not bool(reason)), CASES[name]["reason"]


def test_every_check_accepts_and_refuses() -> None:
    """Every check of lines has accepted and refused inputs, and few facts override a case."""
    inputs = LISTS["inputs"]
    assert {judge for entry in inputs.values() for judge in entry} == {*JUDGES, "facts"}
    accepted = [name for name in inputs if CASES[name]["should_validator_accept"]]
    assert 20 < len(accepted) < len(inputs) / 2
    assert [name for name, entry in inputs.items() if "facts" in entry] == ["track_interface own"]


def test_the_own_interface_is_not_tracked() -> None:
    """keepalived refuses an instance that tracks its own interface; kavip accepts the line and does not render it."""
    service = annotated("a/b", "192.0.2.130", verbatim=json.dumps(LISTS["inputs"]["track_interface own"]["service"]))
    assert conf(build.group(), [service], nodes(1)) == conf(build.group(), [annotated("a/b", "192.0.2.130")], nodes(1))


# --- keywords that kavip writes ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", LISTS["written"])
def test_keywords_that_only_kavip_writes(name: str) -> None:
    """The keyword is refused with any value, on a Service and in a group, and no group may allow it."""
    keyword, snippet = LISTS["written"][name], CASES[name]["config_snippet"]
    assert snippet.startswith(keyword) or keyword in snippet
    value = " ".join(snippet.removeprefix(keyword).split())
    for text in (value, "", "1"):
        (found,) = verbatim.read_service(json.dumps({keyword: text}), allowed=(keyword,)).refusals
        assert found.reason is Reason.INVALID_VERBATIM
        assert "kavip writes this keyword itself" in found.message
        assert verbatim.read_global({keyword: text}, allow_scripts=True).refusals
    assert "kavip writes this keyword itself" in keywords.instance_problem(keyword)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("vrid=")])
def test_router_id_in_status(name: str) -> None:
    """A VRID in a group's status is used, and rendered, only if it is a valid one."""
    text = CASES[name]["config_snippet"].removeprefix("virtual_router_id ")
    try:
        status = msgspec.json.decode(f'{{"routerIDs": {{"a/b": {text}}}}}'.encode(), type=GroupStatus)
    except msgspec.DecodeError:
        assert not CASES[name]["should_validator_accept"]
        return
    held = status.router_ids or {}
    used = routerids.assign(held, ["a/b"], blacklist=frozenset(), taken=frozenset()) == held
    assert used is CASES[name]["should_validator_accept"]
