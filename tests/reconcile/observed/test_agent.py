"""The answer of an agent, as decisions read it."""

import json

import msgspec
import pytest

from kavip.api.address import parse_address
from kavip.api.agent import ProblemCode, decode_state
from kavip.reconcile.observed.agent import node_state
from kavip.reconcile.observed.agentstates import ClaimedAddress, ExcludedInstance, NodeState
from tests.controller.fakeagent import state


def test_a_refusal_becomes_one_short_line() -> None:
    """Agents' messages go into conditions, so line breaks are removed and the length is limited."""
    body = json.dumps(state("h1", refused="line 1\n  line 2 " + "x" * 500)).encode()
    seen = node_state(decode_state(body))
    assert seen.refused.startswith("line 1 line 2 xxx")
    assert len(seen.refused) == 200


def test_excluded_instances_are_read() -> None:
    """They have names and a short reason. An older agent reports none."""
    reported = {"name": "shop/web", "reason": "line 3\nof it", "by": "keepalived", "kept": True, "code": "NodeAddress"}
    body = state("h1") | {"leftOut": [reported | {"virtualIPs": ["192.0.2.130", "nonsense"]}]}
    (seen,) = node_state(decode_state(json.dumps(body).encode())).excluded
    assert seen == ExcludedInstance(
        name="shop/web",
        reason="line 3 of it",
        by_keepalived=True,
        kept=True,
        virtual_ips=frozenset({parse_address("192.0.2.130")}),
        code=ProblemCode.NODE_ADDRESS,
    )
    assert node_state(decode_state(json.dumps(state("h1")).encode())).excluded == ()


def test_claims_of_other_machines_are_read() -> None:
    """Those on VIPs of the group, of hardware addresses; an older agent reports none, a later one other kinds."""
    claim = {"address": "192.0.2.130", "hardwareAddress": "02:00:c0:00:02:63", "interface": "eth0\x1b", "kind": "Held"}
    others = [
        {**claim, "address": "198.51.100.1"},
        {**claim, "hardwareAddress": "02:00:C0:00:02:63"},
        {**claim, "kind": "Imagined"},
    ]
    hardware = ["02:00:c0:00:02:0b", "", "nonsense", "02:00:c0:00:02:0b:00"]
    body = state("h1") | {"conflicts": [*others, claim], "hardwareAddresses": hardware}
    vip = parse_address("192.0.2.130")
    seen = node_state(decode_state(json.dumps(body).encode()), wanted={"192.0.2.130": vip})
    assert seen.claimed == (ClaimedAddress(vip, "02:00:c0:00:02:63", "eth0", is_held=True),)
    assert seen.hardware == ("02:00:c0:00:02:0b",)
    assert node_state(decode_state(json.dumps(state("h1")).encode())).claimed == ()


@pytest.mark.parametrize("field", ["conflicts", "hardwareAddresses"])
def test_a_node_that_reports_too_many_is_not_read(field: str) -> None:
    """Each is bounded, so that a node that lies costs no memory."""
    many = [f"02:00:c0:00:02:{number:02x}" for number in range(100)]
    claims = [{"address": "192.0.2.130", "hardwareAddress": each} for each in many]
    body = state("h1") | {field: many if field == "hardwareAddresses" else claims}
    with pytest.raises(msgspec.ValidationError):
        decode_state(json.dumps(body).encode())


def test_malformed_addresses_are_skipped() -> None:
    """A malformed VIP affects no other."""
    body = json.dumps(state("h1", "192.0.2.130", "nonsense")).encode()
    assert node_state(decode_state(body)).runs == frozenset({parse_address("192.0.2.130")})
    assert NodeState() != node_state(decode_state(body))
