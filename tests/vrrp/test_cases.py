"""Inputs that were tried on keepalived 2.2.7, and what kavip must say to them whatever keepalived says."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kavip.api.group import GroupSpec, GroupStatus, GroupVirtualIP, KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.vrrp import groups, routerids, verbatim
from kavip.vrrp.members import is_name

CASES = json.loads((Path(__file__).parent / "cases" / "keepalived_inputs.json").read_text())


def judge_service(lines: dict[str, str]) -> bool:
    """A Service's verbatimconfig, in a group on eth0 and eth1."""
    return not isinstance(verbatim.service_lines(json.dumps(lines), interfaces=("eth0", "eth1")), Refusal)


def judge_global(lines: dict[str, str]) -> bool:
    """A group's verbatimConfig, its owner being allowed nothing in particular."""
    return not isinstance(verbatim.global_lines(lines, allow_scripts=False), Refusal)


def judge_group(spec: dict[str, Any]) -> bool:
    """Fields of a group."""
    return not groups.check_group(KeepalivedGroup(spec=msgspec.convert({"interface": "eth0", **spec}, GroupSpec)))


def judge_interface(name: str) -> bool:
    """A group's interface."""
    return judge_group({"interface": name})


def judge_virtual_ips(addresses: list[str]) -> bool:
    """A group's own VIPs."""
    listed = [GroupVirtualIP(address=text) for text in addresses]
    return not groups.check_group(KeepalivedGroup(spec=GroupSpec(interface="eth0", virtual_ips=listed)))


def judge_password(text: str) -> bool:
    """The password in a group's Secret."""
    return not groups.password_problem(text)


def judge_service_key(key: str) -> bool:
    """The name of an instance is that of a Service."""
    return is_name(key)


def judge_router_id(text: str) -> bool:
    """A VRID as it stands in an object's JSON: persisted ones are used if they are VRIDs at all."""
    try:
        status = msgspec.json.decode(f'{{"routerIDs": {{"a/b": {text}}}}}'.encode(), type=GroupStatus)
    except msgspec.DecodeError:
        return False
    held = status.router_ids or {}
    return routerids.assign(held, ["a/b"], blacklist=frozenset(), taken=frozenset()).ids == held


JUDGES: dict[str, Callable[[Any], bool]] = {
    "service": judge_service,
    "global": judge_global,
    "group": judge_group,
    "interface": judge_interface,
    "virtual_ips": judge_virtual_ips,
    "password": judge_password,
    "service_key": judge_service_key,
    "router_id": judge_router_id,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_decision(case: dict[str, Any]) -> None:
    """Accepted is what is safe; that keepalived takes a thing is no reason to."""
    assert JUDGES[case["judge"]](case["value"]) is case["accept"], case["reason"]


def test_many() -> None:
    """Both answers are asked for, of every judge."""
    assert len(CASES) > 150
    assert {case["judge"] for case in CASES} == JUDGES.keys()
    assert 20 < sum(case["accept"] for case in CASES) < len(CASES) / 2


def test_keepalived_is_no_judge() -> None:
    """Many of these pass keepalived's own test with exit status 0; that is why kavip does not rely on it."""
    assert sum(not case["accept"] and case["keepalived"]["exit"] == 0 for case in CASES) > 40
