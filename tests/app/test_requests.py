"""Requests of Services, and later changes by users and other controllers, with a real API server and one kavip."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from tests.app.conftest import Installation, a_group, a_pool, a_service, object_of, wait_for

pytestmark = pytest.mark.apiserver

GROUP = "keepalived-operator.redhat-cop.io/keepalivedgroup"
POOL, ADDRESSES, KEY = "kavip.io/pool", "kavip.io/addresses", "kavip.io/sharing-key"
PREFER = {"ipFamilyPolicy": "PreferDualStack"}


@pytest.fixture(scope="module")
def kavip(prepared: ControlPlane) -> Iterator[Installation]:
    """The controller without the webhook, so that nothing is refused before."""
    made = Installation(prepared)
    try:
        made.apply(a_group("edge", default=True), a_group("lab"))
        made.start(webhook=False)
        yield made
    finally:
        made.close()


def in_pool(name: str, pool: str, **more: Any) -> dict[str, Any]:
    """A Service that names a pool, so that tests do not share addresses."""
    return a_service(name, annotations={POOL: pool, **more.pop("annotations", {})}, **more)


def gets(kavip: Installation, name: str, *addresses: str) -> None:
    """Wait until Service *name* has exactly these addresses in this order."""
    wait_for(f"{name} has {addresses}", lambda: kavip.addresses(name) == list(addresses))


def message_of(kavip: Installation, name: str, reason: str) -> str:
    """The message of ``AddressAssigned``, once it has this reason."""
    wait_for(f"{name} has reason {reason}", lambda: kavip.condition(name).get("reason") == reason)
    return kavip.condition(name)["message"]


def edit(kavip: Installation, name: str, **change: Any) -> None:
    """Change a Service; ``annotations`` are metadata, everything else is spec."""
    notes = {"metadata": {"annotations": change.pop("annotations")}} if "annotations" in change else {}
    body = json.dumps({**notes, "spec": change})
    kavip.plane.kubectl("patch", "service", name, "-n", "shop", "--type=merge", "--patch", body)


def write_status(kavip: Installation, kind: str, name: str, **status: Any) -> None:
    """Write into the status of an object as another controller does."""
    where = ["-n", "shop"] if kind == "service" else []
    body = json.dumps({"status": status})
    kavip.plane.kubectl("patch", kind, name, *where, "--subresource=status", "--type=merge", "--patch", body)


def usage(kavip: Installation, pool: str) -> dict[str, int]:
    """The IPv4 numbers in the status of a pool."""
    counts: dict[str, int] = kavip.get("vippool", pool).get("status", {}).get("ipv4", {})
    return counts


def ingress(*addresses: str) -> dict[str, Any]:
    """A status with these addresses."""
    return {"loadBalancer": {"ingress": [{"ip": address} for address in addresses]}}


def status_writes(kavip: Installation, name: str) -> list[dict[str, Any]]:
    """What kavip has written into the status of Service *name* since the mark."""
    events = kavip.plane.audit.events(verb="patch", resource="services", subresource="status")
    return [each.body["status"] for each in events if (each.name, each.code) == (name, 200) and "kavip" in each.agent]


def test_families_come_in_the_order_of_the_service(kavip: Installation) -> None:
    """Single, preferred and required families in both orders; removing one frees its address."""
    kavip.apply(a_pool("dual", "198.51.100.0/29", "2001:db8:1::/125", autoAssign=False))
    both = {"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack"}
    kavip.apply(in_pool("four", "dual", **PREFER))
    gets(kavip, "four", "198.51.100.0", "2001:db8:1::")
    kavip.apply(in_pool("six", "dual", **both), in_pool("single", "dual", ipFamilies=["IPv6"]))
    wait_for("six has both", lambda: len(kavip.addresses("six")) == 2)
    assert [":" in address for address in kavip.addresses("six")] == [True, False]
    wait_for("single has one", lambda: len(kavip.addresses("single")) == 1)
    edit(kavip, "four", ipFamilyPolicy="SingleStack")
    gets(kavip, "four", "198.51.100.0")
    kavip.apply(in_pool("heir", "dual", ipFamilies=["IPv6"], annotations={ADDRESSES: " 2001:DB8:1:0::0 "}))
    gets(kavip, "heir", "2001:db8:1::")


def test_a_service_that_changes_its_type_frees_its_address_in_one_write(kavip: Installation) -> None:
    """Another Service may have it at once; a Service that returns gets a free address."""
    kavip.apply(a_pool("types", "198.51.100.16/30", autoAssign=False), in_pool("web", "types"))
    gets(kavip, "web", "198.51.100.16")
    wait_for("the status is complete", lambda: kavip.condition("web", "kavip.io/Programmed").get("reason") == "NoNodes")
    kavip.plane.audit.mark()
    edit(kavip, "web", type="ClusterIP", allocateLoadBalancerNodePorts=None)
    kavip.apply(in_pool("next", "types"))
    gets(kavip, "next", "198.51.100.16")
    wait_for("nothing is left", lambda: kavip.get("service", "web", "-n", "shop")["status"] == {"loadBalancer": {}})
    (write,) = status_writes(kavip, "web")
    assert {entry["$patch"] for entry in write["conditions"]} == {"delete"}
    edit(kavip, "web", type="LoadBalancer")
    gets(kavip, "web", "198.51.100.17")
    removed_fields = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "ports", "internalTrafficPolicy")
    later = ("allocateLoadBalancerNodePorts", "externalTrafficPolicy")
    edit(kavip, "web", type="ExternalName", externalName="x.example.com", **dict.fromkeys((*removed_fields, *later)))
    wait_for("nothing is left", lambda: kavip.get("service", "web", "-n", "shop")["status"] == {"loadBalancer": {}})


def test_an_edit_moves_only_the_edited_service(kavip: Installation) -> None:
    """A new request is served, removing one changes nothing, and an edit of a pool strands but moves nothing."""
    kavip.apply(a_pool("first", "198.51.100.32/29", autoAssign=False), a_pool("second", "198.51.100.40/29"))
    kavip.apply(in_pool("moving", "first"))
    gets(kavip, "moving", "198.51.100.32")
    edit(kavip, "moving", annotations={ADDRESSES: "198.51.100.38"})
    gets(kavip, "moving", "198.51.100.38")
    edit(kavip, "moving", annotations={ADDRESSES: None, GROUP: "lb/lab"})
    wait_for("the group is another", lambda: "shop/moving" in _router_ids(kavip, "lab"))
    assert kavip.addresses("moving") == ["198.51.100.38"]
    edit(kavip, "moving", annotations={POOL: "second"})
    gets(kavip, "moving", "198.51.100.40")
    kept = {"reservations": [{"address": "198.51.100.40", "service": "shop/later"}]}
    kavip.apply(a_pool("second", "198.51.100.40/29", **kept))
    assert "is reserved for Service shop/later" in message_of(kavip, "moving", "Stranded")
    picky = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}
    kavip.apply(a_pool("second", "198.51.100.40/29", namespaceSelector=picky))
    wait_for(
        "the selector",
        lambda: "cannot serve namespace shop (namespaceSelector)" in kavip.condition("moving")["message"],
    )
    kavip.plane.kubectl("label", "namespace", "shop", "tier=gold")
    try:
        message_of(kavip, "moving", "Assigned")
    finally:
        kavip.plane.kubectl("label", "namespace", "shop", "tier-")
    message_of(kavip, "moving", "Stranded")
    edit(kavip, "moving", annotations={POOL: "first", "kavip.io/reassign": "true"})
    gets(kavip, "moving", "198.51.100.32")


def _router_ids(kavip: Installation, group: str) -> dict[str, int]:
    ids: dict[str, int] = kavip.get("keepalivedgroup", group, "-n", "lb").get("status", {}).get("routerIDs", {})
    return ids


def test_sharing_ends_with_a_conflicting_port_or_policy(kavip: Installation) -> None:
    """The older Service keeps the address; the other gets another one, or reports its request."""
    kavip.apply(a_pool("shared", "198.51.100.48/29", autoAssign=False))
    key = {KEY: "k"}
    names = {"old": 80, "young": 81, "wish": 82}
    for name, port in names.items():
        asks = {ADDRESSES: "198.51.100.48"} if name == "wish" else {}
        kavip.apply(in_pool(name, "shared", annotations={**key, **asks}, ports=[{"port": port}]))
        gets(kavip, name, "198.51.100.48")
    edit(kavip, "young", ports=[{"port": 80}])
    gets(kavip, "young", "198.51.100.49")
    edit(kavip, "wish", externalTrafficPolicy="Local")
    assert "only one of the two has externalTrafficPolicy: Local" in message_of(kavip, "wish", "SharingRefused")
    assert kavip.addresses("wish") == []
    edit(kavip, "wish", externalTrafficPolicy="Cluster")
    gets(kavip, "wish", "198.51.100.48")
    assert kavip.addresses("old") == ["198.51.100.48"]


def test_addresses_in_use_are_not_assigned(kavip: Installation) -> None:
    """Those of nodes, groups, externalIPs and other controllers; a new node takes its address, which is reported."""
    ranges = ("198.51.100.64/28",)
    kavip.apply(object_of("Node", "n1"), a_group("own", virtualIPs=[{"address": "198.51.100.65/28"}]))
    write_status(kavip, "node", "n1", addresses=[{"type": "InternalIP", "address": "198.51.100.64"}])
    plain: dict[str, Any] = {"type": "ClusterIP", "allocateLoadBalancerNodePorts": None}
    kavip.apply(a_service("external", externalIPs=["198.51.100.66"], **plain))
    kavip.apply(a_service("theirs", loadBalancerClass="example.com/other"))
    write_status(kavip, "service", "theirs", **ingress("198.51.100.67"))
    kavip.apply(a_pool("outside", *ranges, autoAssign=False))
    counts = {"total": 16, "assigned": 2, "available": 12}
    wait_for(
        "kavip has observed all four Services",
        lambda: usage(kavip, "outside") == counts,
        details=lambda: usage(kavip, "outside"),
    )
    kavip.apply(in_pool("driven", "outside"))
    gets(kavip, "driven", "198.51.100.68")
    seen = [{"type": "InternalIP", "address": each} for each in ("198.51.100.64", "198.51.100.68")]
    write_status(kavip, "node", "n1", addresses=seen)  # which seems to hold the VIP
    named = {ADDRESSES: "198.51.100.70"}
    kavip.apply(a_service("named", annotations=named))
    gets(kavip, "named", "198.51.100.70")
    assert kavip.addresses("driven") == ["198.51.100.68"]
    kavip.apply(object_of("Node", "n2"))
    both = [("InternalIP", "198.51.100.68"), ("ExternalIP", "198.51.100.70")]
    write_status(kavip, "node", "n2", addresses=[{"type": kind, "address": address} for kind, address in both])
    gets(kavip, "driven", "198.51.100.69")
    assert "is an address of Node n2" in message_of(kavip, "named", "AddressNotAllowed")
    assert kavip.addresses("named") == []

    def notes() -> list[str]:
        events = (kavip.get("events.v1.events.k8s.io", "-n", "shop") or {"items": []})["items"]
        return [each["note"] for each in events if each["regarding"]["name"] == "driven" and each["type"] == "Warning"]

    wait_for("an Event says why", lambda: any("198.51.100.68 is an address of Node n2" in note for note in notes()))
    kavip.plane.kubectl("delete", "node", "n2")
    gets(kavip, "named", "198.51.100.70")
    assert kavip.addresses("driven") == ["198.51.100.69"]
    kavip.plane.kubectl("delete", "node", "n1")  # other tests expect that the group has none


def test_a_status_from_before_is_taken_over_or_left_alone(kavip: Installation) -> None:
    """The older of two Services keeps a common address; an address outside every pool moves on request."""
    kavip.apply(a_pool("found", "198.51.100.96/29"))
    waiting = a_service("waiting", annotations={GROUP: "lb/edge"}, loadBalancerClass="kavip.io/keepalived")
    kavip.replicas[-1].stop()
    kavip.apply(waiting)
    for name, address in {"a": "198.51.100.96", "b": "198.51.100.96", "c": "203.0.113.7"}.items():
        kavip.apply(a_service(name, annotations={GROUP: "lb/edge"}))
        write_status(kavip, "service", name, **ingress(address))
    kavip.start(webhook=False)
    wait_for("the younger has moved", lambda: kavip.addresses("b") not in ([], ["198.51.100.96"]))
    wait_for("the waiting Service has an address", lambda: kavip.addresses("waiting"))
    assert message_of(kavip, "a", "Assigned") == "198.51.100.96 from pool found, written by another controller first"
    assert len({*kavip.addresses("a"), *kavip.addresses("b"), *kavip.addresses("waiting")}) == 3
    assert "203.0.113.7 is in no pool" in message_of(kavip, "c", "ForeignStatus")
    edit(kavip, "c", annotations={"kavip.io/reassign": "true"})
    message_of(kavip, "c", "Assigned")
    assert kavip.addresses("c")[0].startswith("198.51.100.")


MALFORMED = {
    "group": {GROUP: "no-slash"},
    "big": {POOL: "x" * 200_000},
    "unicode": {POOL: "\u202eegde"},
    "address": {ADDRESSES: ",".join(["192.0.2.1"] * 10_000)},
    "mask": {ADDRESSES: "198.51.100.112/32"},
    "key": {KEY: "\U0001f600\u200b"},
    "boolean": {"kavip.io/reassign": "yes"},
}


def test_malformed_objects_affect_no_other(kavip: Installation) -> None:
    """Each is reported in few words; the next valid object is served, and the log stays quiet."""
    bad = [a_service(f"bad-{name}", annotations=notes) for name, notes in MALFORMED.items()]
    spec = {"exclude": [f"10.{number}.0.0/16" for number in range(256)]}
    kavip.plane.kubectl("create", "--filename=-", input=json.dumps({"kind": "List", "apiVersion": "v1", "items": bad}))
    kavip.apply(a_pool("wrong", "198.51.100.120/29", **spec), a_pool("right", "198.51.100.112/29", autoAssign=False))
    kavip.apply(in_pool("good", "right", ports=[{"port": 1 + each, "name": f"p{each}"} for each in range(1000)]))
    gets(kavip, "good", "198.51.100.112")
    for name in MALFORMED:
        assert len(message_of(kavip, f"bad-{name}", "InvalidRequest")) < 300

    def wrong() -> dict[str, str]:
        return kavip.get("vippool", "wrong")["status"]["conditions"][0]  # type: ignore[no-any-return]  # JSON

    wait_for("the pool reports it", lambda: wrong()["reason"] == "Invalid", details=wrong)
    assert len(wrong()["message"]) < 300
    log = [line for line in kavip.replicas[-1].log.read_text().splitlines() if '"level": "' in line]
    assert not [line for line in log if '"level": "error"' in line]
    about = re.compile(r"bad-|wrong")  # a machine that stalls causes other warnings
    assert not [line for line in log if '"level": "warning"' in line and about.search(line)]


def test_ten_thousand_ranges_are_refused_with_few_words(kavip: Installation) -> None:
    """The CRD refuses them, also without kavip."""
    many = [f"10.{number // 256}.{number % 256}.0/24" for number in range(10_000)]
    done = kavip.plane.kubectl("create", "--filename=-", input=json.dumps(a_pool("many", *many)), check=False)
    assert "spec.addresses: Too many: 10000: must have at most 256 items" in done.stderr
    assert len(done.stderr) < 500
