"""
What forged answers of agents can do: a taken node forges its own, a router between leader and agents those of all.

``/state`` is read over plain HTTP, so nothing in it is proved. Whatever it says, it chooses neither addresses nor VRIDs
nor objects: it can only report false states of nodes, and so choose when nodes join, leave and switch. There is one
exception, within bounds: an address that was never announced gives way to another one if a node reports that another
machine has it (:mod:`tests.reconcile.test_address_conflicts`).
"""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.address import parse_address
from kavip.api.agent import LONGEST, ProblemCode, decode_state
from kavip.reconcile.observed.agent import node_state
from kavip.reconcile.observed.agentstates import BACKUP, FAULT, MASTER, Contact
from kavip.reconcile.plan import Apply, Key, KeyKind, PodAnnotation, StatusPatch
from kavip.vrrp.running import running_instances
from tests.reconcile.group.settledgroup import settled, with_pods
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, agent_states, pod, running
from tests.support import build
from tests.support.examples import examples

WEB, API = "shop/web", "shop/api"
VIP = "192.0.2.130"
HASHES = ("", "forged", "current")
LONGEST_MESSAGE = 1024  # characters of a condition; the API server takes 32,768
WORDS = st.one_of(st.sampled_from(["", WEB, f"{WEB}/v6", API, "group/1", VIP]), st.text(max_size=2 * LONGEST))
TIMES = st.sampled_from(["", "2026-03-01T12:00:05Z", "2026-03-01T11:00:00Z", "9999-12-31T00:00:00Z", "soon"])
ADDRESSES = st.lists(st.sampled_from([VIP, "192.0.2.131", "192.0.2.11", "203.0.113.1", "::", "x"]), max_size=4)
CODES = st.sampled_from([each.value for each in ProblemCode])
MACS = st.sampled_from(["02:00:c0:00:02:63", "02:00:c0:00:02:0b", "", "x"])


def forged() -> st.SearchStrategy[dict[str, Any]]:
    """Any answer that can be decoded."""
    instance = {
        "name": WORDS,
        "routerID": st.integers(0, 255),
        "family": st.sampled_from([4, 6, 0]),
        "state": st.sampled_from([MASTER, BACKUP, FAULT, "", "x"]),
        "virtualIPs": ADDRESSES,
        "priority": st.integers(-(2**40), 2**40),
        "lastTransition": TIMES,
    }
    left_out = {
        "name": WORDS,
        "reason": WORDS,
        "by": WORDS,
        "kept": st.booleans(),
        "virtualIPs": ADDRESSES,
        "code": CODES,
    }
    conflict = {
        "address": st.sampled_from([VIP, "192.0.2.131", "203.0.113.1", "x"]),
        "hardwareAddress": MACS,
        "interface": st.text(max_size=20),
        "kind": st.sampled_from(["Withheld", "Held", "x"]),
    }
    return st.fixed_dictionaries(
        {
            "group": st.just(GROUP),
            "conflicts": st.lists(st.fixed_dictionaries(conflict), max_size=3),
            "hardwareAddresses": st.lists(MACS, max_size=3),
            "configHash": st.sampled_from(HASHES),
            "refused": WORDS,
            "refusedCode": CODES,
            "note": WORDS,
            "notes": st.lists(st.fixed_dictionaries({"code": CODES, "message": WORDS}), max_size=3),
            "keepalived": st.fixed_dictionaries({"version": WORDS, "running": st.booleans()}),
            "instances": st.lists(st.fixed_dictionaries(instance), max_size=4),
            "leftOut": st.lists(st.fixed_dictionaries(left_out), max_size=3),
            "prepared": st.one_of(WORDS, st.just("next")),
            "nextRefused": WORDS,
            "switchAt": TIMES,
            "now": TIMES,
            "newPassword": TIMES,
        }
    )


def running_group(**spec: Any) -> SimulatedCluster:
    """A group whose two nodes run its configuration, with a Service from a pool and one with an external IP."""
    services = [
        build.service(WEB, group=GROUP, holds=[VIP]),
        build.service(API, group=GROUP, type="ClusterIP", external_ips=["192.0.2.131"]),
    ]
    group = build.group(unicast_enabled=True, **spec)
    simulation = with_pods(settled(group, build.pool(), *services), pod("edge-1", "n1"), pod("edge-2", "n2"))
    reported = running(simulation.snapshot.groups[GROUP].status.config_hash, VIP, "192.0.2.131")
    simulation.agents = agent_states(n1=reported, n2=reported)
    simulation.settle(Key(KeyKind.GROUP, GROUP), *(Key(KeyKind.SERVICE, key) for key in (WEB, API)))
    return simulation


def fill(found: Any, simulation: SimulatedCluster) -> bytes:
    """The forged answer as bytes, with the digests that the leader waits for."""
    status, data = simulation.snapshot.groups[GROUP].status, simulation.objects.configmaps[GROUP].data or {}
    following = msgspec.json.decode(data[names.AGENT_KEY]).get("nextHash", "")
    text = json.dumps({**found, "prepared": following if found["prepared"] == "next" else found["prepared"]})
    return text.replace('"current"', json.dumps(status.config_hash)).encode()


@pytest.mark.parametrize(
    "edit",
    [{}, {"vrrp_version": 3}, {"interface": "eth1"}, {"instances": {"mode": "Shared", "count": 2}}],
    ids=("settled", "another version", "another interface", "Shared instances"),
)
@examples(8, deadline=None)
@given(data=st.data())
def test_forged_answers_choose_no_address_and_no_object(edit: dict[str, Any], data: st.DataObject) -> None:
    """Settled, and while a switch waits for the nodes: the texts have the addresses and VRIDs of the objects."""
    simulation = running_group()
    group = simulation.snapshot.groups[GROUP]
    spec = msgspec.convert({**msgspec.to_builtins(group.spec), **edit}, type(group.spec), strict=False)
    before = instances_of(simulation)
    daemonset = simulation.objects.daemonsets[GROUP]
    simulation.snapshot.put(msgspec.structs.replace(group, spec=spec))
    claims = {key: simulation.snapshot.ledger.held(key) for key in (WEB, API)}
    for _ in range(3):
        answers = {node: decode_state(fill(data.draw(forged()), simulation)) for node in ("n1", "n2")}
        simulation.agents = agent_states(**{node: node_state(each) for node, each in answers.items()})
        simulation.agents = simulation.agents.with_contact(GROUP, "n1", contact=Contact(last=0.0))
        plan = simulation.group()
        kinds = {type(each) for each in plan.writes}
        assert kinds <= {Apply, PodAnnotation, StatusPatch}
        assert {each.kind for each in plan.writes if isinstance(each, Apply)} <= {names.CONFIG_MAP, names.DAEMON_SET}
        assert {each.key for each in plan.writes if isinstance(each, Apply)} <= {GROUP}
        for key in (WEB, API):
            written = simulation.service(key)
            assert written.claims is None
            assert all(
                "loadBalancer" not in each.body["status"] for each in written.writes if isinstance(each, StatusPatch)
            )
        simulation.later(30)
    assert addresses(instances_of(simulation)) == addresses(before)
    if not edit:
        assert instances_of(simulation) == before
        assert simulation.objects.daemonsets[GROUP] == daemonset
    assert claims == {key: simulation.snapshot.ledger.held(key) for key in (WEB, API)}
    group = simulation.snapshot.groups[GROUP]
    reported = [*(group.status.conditions or ()), *(simulation.snapshot.services[WEB].status.conditions or ())]
    assert max(len(each.message) for each in reported) <= LONGEST_MESSAGE
    assert all(each.message.isprintable() for each in reported)
    assert len(msgspec.json.encode(group.status)) <= 16 * LONGEST_MESSAGE


def instances_of(simulation: SimulatedCluster) -> dict[str, Any]:
    """The identities and VIPs of the instances in the published text."""
    return {name: (each.identity, each.virtual_ips) for name, each in running_instances(simulation.text()).items()}


def addresses(instances: dict[str, Any]) -> set[Any]:
    """All VIPs."""
    found = {vip.address for _, vips in instances.values() for vip in vips}
    assert found <= {parse_address(VIP), parse_address("192.0.2.131")}
    return found
