"""MetalLB's objects as VIPPools and KeepalivedGroups; what has no counterpart is named by object and field."""

from typing import Any

import pytest
import yaml

from kavip.api.meta import Metadata
from kavip.api.metallb import ForeignObject
from kavip.cli.sources import files
from kavip.convert.imported import Imported
from kavip.convert.metallb import Wishes, import_metallb

ETH = Wishes(interface="eth0")


def obj(kind: str, name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> ForeignObject:
    """An object in metallb-system."""
    return ForeignObject(kind=kind, metadata=Metadata(name=name, namespace="metallb-system", labels=labels), spec=spec)


def pool(name: str = "first", *addresses: str, **more: Any) -> ForeignObject:
    """An IPAddressPool."""
    return obj("IPAddressPool", name, addresses=list(addresses) or ["192.0.2.128/28"], **more)


L2 = obj("L2Advertisement", "l2")


def imported(*objects: ForeignObject, wishes: Wishes = ETH) -> Imported:
    """What becomes of *objects*; the order does not matter."""
    found = import_metallb(objects, wishes)
    assert import_metallb(objects[::-1], wishes) == found
    return found


def spec_of(*objects: ForeignObject) -> dict[str, Any]:
    """The spec of the only VIPPool, without its group."""
    (found,) = imported(*objects).pools
    return found.spec


def remarks(*objects: ForeignObject, wishes: Wishes = ETH) -> list[tuple[str, str]]:
    """Subject and field of each remark."""
    return [(each.subject.rpartition("/")[2], each.field) for each in imported(*objects, wishes=wishes).remarks]


def test_a_plain_installation() -> None:
    """One pool and one advertisement: a namespace, a group and a pool for it, which kavip accepts."""
    found = imported(pool(), L2)
    assert found.remarks == ()
    assert [(each["kind"], each["metadata"]["name"]) for each in found.bodies()] == [
        ("Namespace", "lb"),
        ("KeepalivedGroup", "l2"),
        ("VIPPool", "first"),
    ]
    assert found.groups[0].spec == {"interface": "eth0", "drainOn": ["ExcludeLabel"]}
    assert found.pools[0].body["spec"] == {"addresses": ["192.0.2.128/28"], "groups": ["lb/l2"]}


def test_pools_that_metallb_assigns_from_are_named() -> None:
    """Those that are imported, and have autoAssign."""
    found = imported(pool(), pool("closed", "192.0.2.0/28", autoAssign=False), L2)
    assert found.assigning == ("first",)
    assert imported(pool(), L2, pool("other", "192.0.2.0/28")).assigning == ("first", "other")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"autoAssign": False}, {"autoAssign": False}),
        ({"avoidBuggyIPs": True}, {"avoidBuggyIPs": True}),
        ({"serviceAllocation": {"priority": 7}}, {"priority": 7}),
        (
            {"serviceAllocation": {"namespaces": ["b", "a"]}},
            {
                "priority": 99,
                "namespaceSelector": {
                    "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}]
                },
            },
        ),
        (
            {"serviceAllocation": {"serviceSelectors": [{"matchLabels": {"a": "1"}}, {"matchLabels": {"a": "2"}}]}},
            {
                "priority": 99,
                "serviceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]},
            },
        ),
        (
            {"serviceAllocation": {"namespaceSelectors": [{"matchLabels": {"a": "1", "b": "2"}}]}},
            {"priority": 99, "namespaceSelector": {"matchLabels": {"a": "1", "b": "2"}}},
        ),
    ],
)
def test_each_field_of_a_pool(more: dict[str, Any], expected: dict[str, Any]) -> None:
    """The fields with a counterpart."""
    assert spec_of(pool(**more), L2) == {"addresses": ["192.0.2.128/28"], **expected}


def test_addresses_as_metallb_reads_them() -> None:
    """Ranges, blanks, host bits and both families."""
    given = pool("first", "192.0.2.10 - 192.0.2.20", "198.51.100.7/24", "2001:db8::/120")
    assert spec_of(given, L2)["addresses"] == ["192.0.2.10-192.0.2.20", "198.51.100.0/24", "2001:db8::/120"]
    assert remarks(given, L2) == [("first", "spec.addresses[1]")]
    assert remarks(pool("first", "nonsense"), L2) == [("first", "spec.addresses[0]")]


def test_the_order_of_pools_stays() -> None:
    """Pools with a priority, then those with a serviceAllocation, then all others."""
    found = imported(
        pool("last", "192.0.2.0/28"),
        pool("first", "192.0.2.16/28", serviceAllocation={"priority": 150}),
        pool("middle", "192.0.2.32/28", serviceAllocation={"namespaces": ["a"]}),
        L2,
    )
    ranks = {each.name: each.spec.get("priority", 100) for each in found.pools}
    assert sorted(ranks, key=lambda name: ranks[name]) == ["first", "middle", "last"]


def test_alternatives_that_cannot_be_joined_close_the_pool() -> None:
    """It gives addresses only by request, rather than to Services that MetalLB would not serve."""
    selectors = [{"matchLabels": {"a": "1"}}, {"matchLabels": {"b": "2"}}]
    given = pool(serviceAllocation={"serviceSelectors": selectors})
    assert spec_of(given, L2) == {"addresses": ["192.0.2.128/28"], "priority": 99, "autoAssign": False}
    assert remarks(given, L2) == [("first", "spec.serviceAllocation.serviceSelectors")]


def test_advertisements_become_groups() -> None:
    """By interface and nodes; those that announce alike become one, and a pool belongs to the first."""
    rack = {"matchLabels": {"rack": "1"}}
    found = imported(
        pool("a", "192.0.2.0/28"),
        pool("b", "192.0.2.16/28"),
        obj("IPAddressPool", "c", labels={"zone": "c"}, addresses=["192.0.2.32/28"]),
        obj("L2Advertisement", "one", ipAddressPools=["a"], interfaces=["eth1"], nodeSelectors=[rack]),
        obj("L2Advertisement", "same", ipAddressPools=["b"], interfaces=["eth1"], nodeSelectors=[rack]),
        obj(
            "L2Advertisement",
            "two",
            ipAddressPoolSelectors=[{"matchLabels": {"zone": "c"}}],
            nodeSelectors=[rack, {"matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}],
        ),
    )
    assert {each.name: each.group for each in found.pools} == {"a": "lb/one", "b": "lb/one", "c": "lb/two"}
    one, two = found.groups
    assert one.spec == {"interface": "eth1", "drainOn": ["ExcludeLabel"], "nodeSelector": {"rack": "1"}}
    required = two.spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["1"]}]},
        {"matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]},
    ]
    assert found.remarks == ()


def test_what_has_no_counterpart_is_named() -> None:
    """BGP, selectors of Services, unknown fields, interfaces, a pool in two groups or in none, an older MetalLB."""
    given = (
        pool("a", "192.0.2.0/28", newField=1),
        pool("routed", "198.51.100.0/28"),
        pool("idle", "203.0.113.0/28"),
        obj("L2Advertisement", "l2", ipAddressPools=["a"], interfaces=["eth1", "eth2"], serviceSelectors=[{}]),
        obj("L2Advertisement", "other", ipAddressPools=["a"]),
        obj("L2Advertisement", "typo", ipAddressPools=["b", "c"]),
        obj("AddressPool", "old", protocol="layer2", addresses=["192.0.2.32/28"]),
        obj("BGPAdvertisement", "bgp", ipAddressPools=["routed"]),
        obj("BGPPeer", "router", peerASN=64512),
        obj("BFDProfile", "fast"),
    )
    assert remarks(*given, wishes=Wishes()) == [
        ("old", ""),
        ("fast", ""),
        ("bgp", ""),
        ("router", ""),
        ("a", "spec.newField"),
        ("idle", ""),
        ("routed", ""),
        ("l2", "spec.interfaces"),
        ("l2", "spec.serviceSelectors"),
        ("other", "spec.interfaces"),
        ("other", "spec.ipAddressPools"),
        *[("typo", "spec.ipAddressPools")] * 2,
    ]
    assert [each.name for each in imported(*given).pools] == ["a"]


def test_malformed_objects_are_named() -> None:
    """The others are imported."""
    found = imported(pool(), pool("bad", "192.0.2.0/28", autoAssign="yes"), L2)
    assert [each.name for each in found.pools] == ["first"]
    assert [(each.subject, each.field) for each in found.remarks] == [("IPAddressPool metallb-system/bad", "spec")]


def test_objects_with_one_name_are_left() -> None:
    """Those of two clusters, or of two MetalLBs, would be mixed."""
    other = ForeignObject(
        kind="IPAddressPool", metadata=Metadata(name="first", namespace="other"), spec={"addresses": ["192.0.2.0/28"]}
    )
    found = imported(pool(), other, pool("second", "192.0.2.16/28"), L2)
    assert [each.name for each in found.pools] == ["second"]
    assert [each.subject.split() for each in found.remarks] == [
        ["IPAddressPool", f"{namespace}/first"] for namespace in ("metallb-system", "other")
    ]


def test_the_ranges_of_pools_that_stay() -> None:
    """They tell which Services stay: those of other pools, of unreadable ones and of ones that are there twice."""
    chosen = obj("L2Advertisement", "l2", ipAddressPools=["first"])
    twice = ForeignObject(kind="IPAddressPool", metadata=Metadata(name="two", namespace="b"), spec={"addresses": 5})
    found = imported(
        pool(),
        pool("wan", "203.0.113.1/24", "x"),
        pool("bad", "198.51.100.0/28", autoAssign="yes"),
        pool("two", "198.51.100.16/28"),
        twice,
        obj("AddressPool", "old", protocol="layer2", addresses=["198.51.100.32/28", 7]),
        obj("AddressPool", "first", protocol="layer2", addresses=["192.0.2.128/28"]),
        obj("AddressPool", "both", addresses=["198.51.100.64/28"]),
        ForeignObject(kind="AddressPool", metadata=Metadata(name="both", namespace="b"), spec={}),
        chosen,
    )
    assert {name: list(map(str, ranges)) for name, ranges in sorted(found.left.items())} == {
        "bad": ["198.51.100.0/28"],
        "both": ["198.51.100.64/28"],
        "old": ["198.51.100.32/28"],
        "two": ["198.51.100.16/28"],
        "wan": ["203.0.113.0/24"],
    }


def test_an_existing_group_serves_all() -> None:
    """Then no group is made."""
    found = imported(pool(), L2, wishes=Wishes(group="net/edge"))
    assert (found.groups, found.pools[0].group) == ((), "net/edge")


def test_the_manifests_are_valid(tmp_path: Any) -> None:
    """kavip reads what an import prints."""
    rack = [{"matchLabels": {"rack": "1"}}, {"matchLabels": {"rack": "2"}}]
    found = imported(pool(serviceAllocation={"namespaces": ["a"]}), obj("L2Advertisement", "l2", nodeSelectors=rack))
    (tmp_path / "made.yaml").write_text(yaml.safe_dump_all(found.bodies()))
    assert len(files.load([tmp_path])) == 3
