"""The answer of an agent, as decisions read it."""

import json

from kavip.api.address import parse_address
from kavip.api.agent import decode_state
from kavip.reconcile.observed.agent import node_state
from kavip.reconcile.observed.agentstates import ExcludedInstance, NodeState
from tests.controller.fakeagent import state


def test_a_refusal_becomes_one_short_line() -> None:
    """Agents' messages go into conditions, so line breaks are removed and the length is limited."""
    body = json.dumps(state("h1", refused="line 1\n  line 2 " + "x" * 500)).encode()
    seen = node_state(decode_state(body))
    assert seen.refused.startswith("line 1 line 2 xxx")
    assert len(seen.refused) == 200


def test_excluded_instances_are_read() -> None:
    """They have names and a short reason. An older agent reports none."""
    reported = {"name": "shop/web", "reason": "line 3\nof it", "by": "keepalived", "kept": True}
    body = state("h1") | {"leftOut": [reported | {"virtualIPs": ["192.0.2.130", "nonsense"]}]}
    (seen,) = node_state(decode_state(json.dumps(body).encode())).excluded
    assert seen == ExcludedInstance(
        name="shop/web",
        reason="line 3 of it",
        by_keepalived=True,
        kept=True,
        virtual_ips=frozenset({parse_address("192.0.2.130")}),
    )
    assert node_state(decode_state(json.dumps(state("h1")).encode())).excluded == ()


def test_malformed_addresses_are_skipped() -> None:
    """A malformed VIP affects no other."""
    body = json.dumps(state("h1", "192.0.2.130", "nonsense")).encode()
    assert node_state(decode_state(body)).runs == frozenset({parse_address("192.0.2.130")})
    assert NodeState() != node_state(decode_state(body))
