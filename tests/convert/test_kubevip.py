"""kube-vip's ConfigMap and DaemonSet as VIPPools and KeepalivedGroups."""

from typing import Any

import pytest

from kavip.api.meta import Metadata
from kavip.api.metallb import ForeignObject
from kavip.convert.imported import Imported
from kavip.convert.kubevip import import_kubevip
from kavip.convert.metallb import Wishes

ETH = Wishes(interface="eth0")


def config(**data: str) -> ForeignObject:
    """The ConfigMap; ``_`` in a key stands for ``-``."""
    content = {key.replace("_", "-"): text for key, text in data.items()}
    return ForeignObject(kind="ConfigMap", metadata=Metadata(name="kubevip", namespace="kube-system"), data=content)


def pods(**env: str) -> ForeignObject:
    """The DaemonSet with these variables."""
    container = {"name": "kube-vip", "env": [{"name": name, "value": text} for name, text in env.items()]}
    pod = {
        "containers": [container],
        "nodeSelector": {"edge": "yes"},
        "tolerations": [{"operator": "Exists"}],
        "hostNetwork": True,
    }
    metadata = Metadata(name="kube-vip-ds", namespace="kube-system")
    return ForeignObject(kind="DaemonSet", metadata=metadata, spec={"template": {"spec": pod}})


def imported(*objects: ForeignObject, wishes: Wishes = ETH) -> Imported:
    """What becomes of *objects*, in any order."""
    found = import_kubevip(objects, wishes)
    assert import_kubevip(objects[::-1], wishes) == found
    return found


def pools(*objects: ForeignObject) -> dict[str, dict[str, Any]]:
    """The specs of the VIPPools by name."""
    return {each.name: each.spec for each in imported(*objects).pools}


def fields(*objects: ForeignObject) -> list[str]:
    """The fields of the remarks."""
    return [each.field for each in imported(*objects).remarks]


def namespaces(operator: str, *values: str) -> dict[str, Any]:
    """A selector of namespaces by name."""
    term = {"key": "kubernetes.io/metadata.name", "operator": operator, "values": list(values)}
    return {"matchExpressions": [term]}


def test_the_global_range() -> None:
    """One pool for all namespaces, and a group on the interface of kube-vip's pods, where they run."""
    found = imported(config(cidr_global="192.0.2.128/28"), pods(svc_enable="true", vip_interface="ens3"))
    assert [each.body["spec"] for each in found.pools] == [{"addresses": ["192.0.2.128/28"], "groups": ["lb/kube-vip"]}]
    assert [each.spec for each in found.groups] == [
        {"interface": "ens3", "nodeSelector": {"edge": "yes"}, "tolerations": [{"operator": "Exists"}]}
    ]
    assert found.remarks == ()


def test_a_namespace_with_a_range_of_its_own_uses_no_other() -> None:
    """Its pool is for it alone, and the global one is for all others."""
    assert pools(config(cidr_global="192.0.2.128/28", cidr_shop="192.0.2.0/28,2001:db8::/124")) == {
        "kube-vip-shop": {
            "addresses": ["192.0.2.0/28", "2001:db8::/124"],
            "priority": 50,
            "namespaceSelector": namespaces("In", "shop"),
        },
        "kube-vip-global": {"addresses": ["192.0.2.128/28"], "namespaceSelector": namespaces("NotIn", "shop")},
    }


def test_the_cloud_provider_looks_at_cidrs_first() -> None:
    """A range is unused where a cidr is found before it."""
    given = config(cidr_global="192.0.2.128/28", range_global="192.0.2.1-192.0.2.9", range_shop="192.0.2.20-192.0.2.29")
    assert list(pools(given)) == ["kube-vip-global"]
    assert fields(given) == ["data[range-global]", "data[range-shop]"]
    ranges = config(range_global="192.0.2.1-192.0.2.9", cidr_shop="192.0.2.16/29", range_shop="192.0.2.20-192.0.2.29")
    assert pools(ranges)["kube-vip-global"]["addresses"] == ["192.0.2.1-192.0.2.9"]
    assert fields(ranges) == ["data[range-shop]"]


def test_each_interface_has_a_group_of_its_own() -> None:
    """The names of the groups differ, and are valid whatever the interface is called."""
    given = config(
        cidr_a="192.0.2.0/29",
        interface_a="bond0.100",
        cidr_b="192.0.2.8/29",
        interface_b="bond0_100",
        cidr_c="192.0.2.16/29",
        interface_c="br_Lan",
        cidr_global="192.0.2.128/28",
    )
    found = imported(given, pods(svc_enable="true", vip_interface="ens3"))
    assert {each.key: each.spec["interface"] for each in found.groups} == {
        "lb/kube-vip": "bond0.100",
        "lb/kube-vip-bond0-100": "bond0_100",
        "lb/kube-vip-br-lan": "br_Lan",
        "lb/kube-vip-ens3": "ens3",
    }
    assert {each.name: each.group for each in found.pools} == {
        "kube-vip-a": "lb/kube-vip",
        "kube-vip-b": "lb/kube-vip-bond0-100",
        "kube-vip-c": "lb/kube-vip-br-lan",
        "kube-vip-global": "lb/kube-vip-ens3",
    }


def test_overlaps_are_removed() -> None:
    """Within a range silently, between two with a remark: pools must not overlap."""
    given = config(cidr_shop="192.0.2.0/29,192.0.2.0/28", cidr_global="192.0.2.0/27")
    assert {name: spec["addresses"] for name, spec in pools(given).items()} == {
        "kube-vip-shop": ["192.0.2.0/28"],
        "kube-vip-global": ["192.0.2.16/28"],
    }
    assert fields(given) == ["data[cidr-global]"]


def test_the_ends_of_cidrs_can_be_left_out() -> None:
    """Of IPv4 with more than two addresses."""
    given = config(
        cidr_global="192.0.2.8/29,192.0.2.2/31,192.0.2.1/32,2001:db8::/126", **{"skip-end-ips-in-cidr": "true"}
    )
    assert pools(given)["kube-vip-global"]["addresses"] == [
        "192.0.2.1",
        "192.0.2.2/31",
        "192.0.2.9-192.0.2.14",
        "2001:db8::/126",
    ]


def test_interfaces_become_groups() -> None:
    """A namespace with an interface of its own has a group of its own."""
    given = config(
        cidr_global="192.0.2.128/28", cidr_shop="192.0.2.0/28", interface_shop="eth3", cidr_blog="192.0.2.16/28"
    )
    found = imported(
        given, pods(svc_enable="true", vip_interface="ens3", vip_servicesinterface="ens4"), wishes=Wishes()
    )
    assert {each.name: each.group for each in found.pools} == {
        "kube-vip-blog": "lb/kube-vip",
        "kube-vip-shop": "lb/kube-vip-eth3",
        "kube-vip-global": "lb/kube-vip",
    }
    assert {each.key: each.spec["interface"] for each in found.groups} == {
        "lb/kube-vip": "ens4",
        "lb/kube-vip-eth3": "eth3",
    }


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (config(cidr_global="0.0.0.0/32"), "data[cidr-global]"),
        (config(cidr_global="nonsense"), "data[cidr-global]"),
        (config(**{"search-order": "desc"}), "data[search-order]"),
        (config(something="else"), "data[something]"),
        (config(allow_share_shop="true"), "data[allow-share-shop]"),
        (pods(bgp_enable="true", vip_interface="e"), "bgp_enable"),
        (pods(cp_enable="true", address="192.0.2.1"), "cp_enable"),
        (pods(vip_arp="true", vip_wireguard="true"), "vip_wireguard"),
    ],
)
def test_what_has_no_counterpart_is_named(given: ForeignObject, field: str) -> None:
    """By object and field."""
    assert fields(given) == [field]
    assert imported(given).pools == ()


def test_an_unknown_interface_is_named() -> None:
    """The user must give it."""
    found = imported(config(cidr_global="192.0.2.128/28"), wishes=Wishes())
    assert [each.field for each in found.remarks] == ["data[cidr-global]"]
    assert imported(config(cidr_global="192.0.2.128/28"), wishes=Wishes(group="net/edge")).groups == ()
