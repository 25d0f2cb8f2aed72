"""Addresses on a real API server: assigned once, kept over restarts and fail-overs, never taken from other holders."""

import json
import time
from functools import partial

import pytest

from tests.app.conftest import Installation, a_group, a_pool, a_service, crd, object_of, wait_for

pytestmark = pytest.mark.apiserver

GROUP = "keepalived-operator.redhat-cop.io/keepalivedgroup"
NOTES = {GROUP: "lb/edge"}


def create_pool_and_group(installation: Installation) -> None:
    """Create a pool and a default group, and wait until kavip has observed them; watches on new CRDs may break once."""
    installation.apply_and_wait(a_pool("edge", "192.0.2.128/27", "2001:db8:1::/120"), a_group("edge", default=True))


def assigned(installation: Installation, *names: str) -> dict[str, list[str]]:
    """The addresses of Services; waits for them."""
    return {name: wait_for(f"{name} has an address", partial(installation.addresses, name)) for name in names}


def test_plain_and_annotated_services_get_addresses_in_one_status_write(installation: Installation) -> None:
    """Address, AddressAssigned and the first Programmed are one write each; a second reconcile writes nothing."""
    installation.start()
    create_pool_and_group(installation)
    installation.plane.audit.mark()
    installation.apply(a_service("plain"), a_service("noted", annotations=NOTES))
    found = assigned(installation, "plain", "noted")
    assert sorted(each for held in found.values() for each in held) == ["192.0.2.128", "192.0.2.129"]
    assert installation.condition("plain")["reason"] == "Assigned"
    assert installation.condition("plain", "kavip.io/Programmed")["status"] == "False"
    entry = installation.get("service", "plain", "-n", "shop")["status"]["loadBalancer"]["ingress"][0]
    assert entry["ipMode"] == "VIP"
    installation.wait_for_conditions("plain", "noted")
    wait_for("kavip is idle", lambda: _quiet(installation))
    writes = [
        event
        for event in installation.plane.audit.events(verb="patch", resource="services", subresource="status")
        if event.name == "plain" and event.code == 200
    ]
    assert len([event for event in writes if "loadBalancer" in json.dumps(event.body)]) == 1
    reasons = [each["reason"] for event in writes for each in event.body["status"]["conditions"]]
    assert (reasons[0], reasons[-1]) == (
        "Assigned",
        "NoNodes",
    )  # one write has both, unless kavip has not observed the group yet
    assert len(writes) <= 2


def test_a_requested_address_is_assigned(installation: Installation) -> None:
    """By annotation, and by the deprecated spec.loadBalancerIP."""
    installation.start()
    create_pool_and_group(installation)
    wish = {**NOTES, "kavip.io/addresses": "192.0.2.140"}
    installation.apply(a_service("noted", annotations=wish), a_service("old", loadBalancerIP="192.0.2.141"))
    assert assigned(installation, "noted", "old") == {"noted": ["192.0.2.140"], "old": ["192.0.2.141"]}


def test_addresses_survive_a_restart_and_cost_no_write(installation: Installation) -> None:
    """Holders are entered before other Services are served; a new leader writes nothing that is unchanged."""
    first = installation.start()
    create_pool_and_group(installation)
    names = [f"s{number}" for number in range(12)]
    installation.apply(*(a_service(name) for name in names))
    before = assigned(installation, *names)
    installation.wait_for_conditions(*names)
    wait_for("kavip is idle", lambda: _quiet(installation))
    assert first.stop() == 0
    installation.plane.audit.mark()
    installation.start()
    installation.apply(a_service("new"))
    assert assigned(installation, "new")["new"][0] not in [each for held in before.values() for each in held]
    assert {name: installation.addresses(name) for name in names} == before
    written = {
        event.name for event in installation.plane.audit.events(verb="patch", resource="services", subresource="status")
    }
    assert written == {"new"}


def _quiet(installation: Installation) -> bool:
    """Whether kavip writes nothing for two seconds."""
    before = _writes(installation)
    time.sleep(2)
    return _writes(installation) == before


def _writes(installation: Installation) -> int:
    """The number of kavip's writes since the mark."""
    return sum(event.resource != "leases" for event in installation.plane.audit.events(verb="patch"))


def test_of_two_replicas_one_may_be_killed(installation: Installation) -> None:
    """The other one becomes the leader within the lease duration; no address moves, and the next Service is served."""
    replicas = [installation.start("--lease-seconds=6", webhook=False)]
    create_pool_and_group(installation)
    installation.apply(a_service("before"))
    held = assigned(installation, "before")
    replicas.append(installation.start("--lease-seconds=6", webhook=False))
    leader = installation.leader()
    (follower,) = (each for each in replicas if each is not leader)
    leader.kill()
    wait_for("the other replica leads", lambda: follower.metric("kavip_leader") == 1.0)
    installation.apply(a_service("after"))
    assert assigned(installation, "before", "after") == {**held, "after": ["192.0.2.129"]}


def test_a_status_that_another_controller_wrote_is_left_alone(installation: Installation) -> None:
    """A plain Service with a foreign address is not adopted, and its address is not assigned."""
    installation.apply(a_service("foreign"))
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.128", "ipMode": "VIP"}]}}}
    installation.plane.kubectl(
        *("patch", "service", "foreign", "-n", "shop", "--subresource=status", "--type=merge", "-p", json.dumps(status))
    )
    installation.start()
    create_pool_and_group(installation)
    installation.apply(a_service("ours"))
    assert assigned(installation, "ours") == {"ours": ["192.0.2.129"]}
    assert installation.addresses("foreign") == ["192.0.2.128"]
    assert installation.condition("foreign") == {}


def test_a_full_pool_makes_services_wait_until_an_address_is_freed(installation: Installation) -> None:
    """The condition has the cause and the numbers; the freed address goes to the waiting Service at once."""
    installation.start()
    installation.apply_and_wait(a_pool("edge", "192.0.2.128/31"), a_group("edge", default=True))
    installation.apply(*(a_service(f"s{number}") for number in range(2)))
    assigned(installation, "s0", "s1")
    installation.apply(a_service("late"))
    wait_for(
        "the Service reports PoolExhausted", lambda: installation.condition("late").get("reason") == "PoolExhausted"
    )
    assert "2 of 2" in installation.condition("late")["message"]
    freed = installation.addresses("s0")
    installation.plane.kubectl("delete", "service", "s0", "-n", "shop")
    assert assigned(installation, "late") == {"late": freed}


def test_a_service_that_stops_being_managed_loses_what_kavip_wrote(installation: Installation) -> None:
    """With type ClusterIP status and conditions are removed, and the address is free."""
    installation.start()
    create_pool_and_group(installation)
    installation.apply(a_service("web"))
    assigned(installation, "web")
    change = {"spec": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": None}}
    installation.plane.kubectl("patch", "service", "web", "-n", "shop", "--type=merge", "-p", json.dumps(change))
    wait_for("kavip's condition is gone", lambda: installation.condition("web") == {})
    assert installation.addresses("web") == []


def test_a_malformed_object_affects_no_other(installation: Installation) -> None:
    """A pool with an unusable stored form gets a condition; other pools are used."""
    installation.apply(a_pool("edge", "192.0.2.128/27"), a_pool("clash", "192.0.2.130-192.0.2.140"))
    installation.start()
    installation.apply_and_wait(a_group("edge", default=True))
    installation.apply(a_service("web"))
    assigned(installation, "web")

    def reasons() -> dict[str, str]:
        pools = installation.get("vippools")["items"]
        return {
            pool["metadata"]["name"]: entry["reason"]
            for pool in pools
            for entry in pool.get("status", {}).get("conditions", [])
            if entry["type"] == "Accepted"
        }

    wait_for("one of the two overlaps", lambda: sorted(reasons().values()) == ["Accepted", "Overlap"], details=reasons)


def test_a_service_with_too_many_external_ips_affects_no_other(installation: Installation) -> None:
    """
    32,000 external IPs that bypassed the webhook: the group works, and the condition has the number of served ones.
    """
    installation.start(webhook=False)
    create_pool_and_group(installation)
    many = [f"198.18.{number // 256}.{number % 256}" for number in range(32_000)]
    huge = a_service("huge", annotations=NOTES, type="ClusterIP", allocateLoadBalancerNodePorts=None, externalIPs=many)
    made = installation.plane.kubectl("create", "--filename=-", input=json.dumps(huge), check=False)
    assert made.returncode == 0, made.stderr
    installation.apply(a_service("web"))
    (vip,) = assigned(installation, "web")["web"]

    def text() -> str:
        found = installation.get("configmap", "edge", "-n", "lb") or {}
        return str(found.get("data", {}).get("keepalived.conf", ""))

    wait_for("both Services are in the configuration", lambda: vip in text() and " 198.18.0.31/32" in text())
    assert " 198.18.0.32/32" not in text()
    installation.wait_for_conditions("huge")


def test_kavip_assigns_no_address_where_openshift_does(installation: Installation) -> None:
    """With ipam auto, autoAssignCIDRs means LeftToPlatform unless a pool is named; rejectedCIDRs applies."""
    plane = installation.plane
    installation.apply(crd("config.openshift.io", "Network", "networks", scope="Cluster"))
    try:
        plane.wait_established()
        network = object_of("Network", "cluster", version="config.openshift.io/v1")
        installation.apply({**network, "spec": {"externalIP": {"autoAssignCIDRs": ["198.51.100.0/24"]}}})
        installation.start()
        create_pool_and_group(installation)
        installation.apply(a_service("left"), a_service("ours", annotations={"kavip.io/pool": "edge"}))
        assert assigned(installation, "ours") == {"ours": ["192.0.2.128"]}
        wait_for(
            "the Service reports LeftToPlatform",
            lambda: installation.condition("left").get("reason") == "LeftToPlatform",
        )
        assert installation.condition("left")["status"] == "Unknown"
        assert installation.addresses("left") == []
        rejecting = {"policy": {"rejectedCIDRs": ["192.0.2.129/30"]}}  # with host bits, which OpenShift accepts
        change = {"spec": {"externalIP": {"autoAssignCIDRs": None, **rejecting}}}
        plane.kubectl("patch", "network.config.openshift.io", "cluster", "--type=merge", "-p", json.dumps(change))
        assert assigned(installation, "left") == {"left": ["192.0.2.132"]}
        wait_for(
            "the holder reports the rejected range",
            lambda: "rejectedCIDRs" in installation.condition("ours")["message"],
        )
        assert installation.condition("ours")["reason"] == "Stranded"
        assert installation.addresses("ours") == ["192.0.2.128"]
        refused = installation.try_apply(a_service("bad", annotations={"kavip.io/addresses": "192.0.2.129"}))
        assert (
            "192.0.2.129 of pool edge lies in spec.externalIP.policy.rejectedCIDRs of Network cluster" in refused.stderr
        )
        counts = {"total": 28, "assigned": 1, "available": 27}
        wait_for(
            "the counts of the pool exclude the rejected range",
            lambda: installation.get("vippool", "edge")["status"]["ipv4"] == counts,
        )
    finally:
        installation.undefine("networks.config.openshift.io")


def test_the_group_gets_its_objects_and_its_router_ids_first(installation: Installation) -> None:
    """status.routerIDs is written before the ConfigMap that uses it; the group owns DaemonSet and ConfigMap."""
    installation.start()
    installation.plane.audit.mark()
    node = object_of("Node", "n1")
    installation.apply(node)
    patch = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]}}
    installation.plane.kubectl("patch", "node", "n1", "--subresource=status", "--type=merge", "-p", json.dumps(patch))
    create_pool_and_group(installation)
    installation.apply(a_service("web"))

    def text() -> str:
        found = installation.get("configmap", "edge", "-n", "lb") or {}
        return str(found.get("data", {}).get("keepalived.conf", ""))

    wait_for("the configuration has the VIP", lambda: "192.0.2.128" in text())
    wait_for("there is a DaemonSet", lambda: installation.get("daemonset", "edge", "-n", "lb"))
    group = installation.get("keepalivedgroup", "edge", "-n", "lb")
    number = group["status"]["routerIDs"]["shop/web"]
    assert f"virtual_router_id {number}" in text()
    daemonset = installation.get("daemonset", "edge", "-n", "lb")
    assert daemonset["metadata"]["ownerReferences"][0]["uid"] == group["metadata"]["uid"]
    order = [
        event.resource
        for event in installation.plane.audit
        if event.verb in ("patch", "create") and "shop/web" in json.dumps(event.body) and event.namespace == "lb"
    ]
    assert order.index("keepalivedgroups") < order.index("configmaps")
