"""The VRIDs of OpenShift clusters, and the name of this cluster."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.cluster import Infrastructure
from kavip.errors import BadInput
from kavip.vrrp.openshift import cluster_name, platform_ids, router_ids
from tests.support import build

# from openshift/baremetal-runtimecfg's own code; cnf10 and cnf11 are in the installer's documentation too
KNOWN = {
    "cnf10": (147, 2, 158),
    "cnf11": (228, 147, 239),
    "ostest": (14, 93, 10),
    "test": (13, 28, 9),
    "mycluster": (74, 137, 70),
    "ocp": (23, 134, 19),
    "openshift": (113, 95, 124),
    "dev": (180, 99, 191),
    "prod": (2, 33, 13),
    "a": (167, 38, 163),
    "cluster-1": (9, 8, 5),
    "kni1": (27, 154, 23),
    "my-cluster-2": (159, 62, 155),
    "xn--80ak6aa92e": (36, 195, 47),
}


@pytest.mark.parametrize(("name", "expected"), KNOWN.items())
def test_vrids_of_known_clusters(name: str, expected: tuple[int, int, int]) -> None:
    """kavip computes the same VRIDs as OpenShift."""
    assert router_ids(name) == expected


@pytest.mark.slow
@given(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?", fullmatch=True))
def test_some_vrids_are_never_used(name: str) -> None:
    """No OpenShift cluster uses multiples of 16 or numbers above 240, and its three VRIDs differ."""
    ids = router_ids(name)
    assert all(1 <= number <= 239 and number % 16 for number in ids)
    assert len(set(ids)) == 3


@pytest.mark.parametrize("name", ["", "UPPER", "-a", "a_b", "a b", "ä", "a" * 300])
def test_an_invalid_cluster_name_is_refused(name: str) -> None:
    """A text that cannot be the name of a cluster is refused, with the name of the field."""
    with pytest.raises(BadInput, match=r"spec\.openshiftClusterName: "):
        router_ids(name, "spec.openshiftClusterName")


# as the installer writes it on bare metal (openshift/api, config/v1)
STATUS = {
    "apiServerInternalURI": "https://api-int.prod.example.com:6443",
    "apiServerURL": "https://api.prod.example.com:6443",
    "infrastructureName": "prod-x7k2p",
    "platformStatus": {
        "type": "BareMetal",
        "baremetal": {
            "apiServerInternalIPs": ["192.0.2.5"],
            "ingressIPs": ["192.0.2.6"],
            "loadBalancer": {"type": "OpenShiftManagedDefault"},
        },
    },
}


def infrastructure(**status: Any) -> Infrastructure:
    """The Infrastructure with other fields of *status*."""
    return msgspec.convert({"metadata": {"name": "cluster"}, "status": {**STATUS, **status}}, Infrastructure)


@pytest.mark.parametrize("platform", ["baremetal", "vsphere", "openstack", "nutanix", "ovirt"])
@pytest.mark.parametrize("vips", [{"apiServerInternalIPs": ["192.0.2.5"]}, {"apiServerInternalIP": "192.0.2.5"}])
def test_the_name_of_this_cluster(platform: str, vips: dict[str, Any]) -> None:
    """The second label of the internal URI is the name, without the suffix of ``infrastructureName``."""
    assert cluster_name(infrastructure(platformStatus={platform: vips})) == "prod"


@pytest.mark.parametrize(
    "status",
    [
        {"platformStatus": None},
        {"platformStatus": {"type": "None"}},
        {"platformStatus": {"type": "AWS", "aws": {"region": "eu"}}},
        {"platformStatus": {"vsphere": {}}},  # installed without the VIPs of the installer
        {
            "platformStatus": {
                "baremetal": {"apiServerInternalIPs": ["192.0.2.5"], "loadBalancer": {"type": "UserManaged"}}
            }
        },
        {"apiServerInternalURI": ""},
        {"apiServerInternalURI": "https://192.0.2.5:6443"},
        {"apiServerInternalURI": "https://[api-int.prod.example.com"},
        {"apiServerInternalURI": "https://api-int.pr_od.example.com:6443"},
        {"apiServerInternalURI": "https://api-int.prod:6443"},
    ],
)
def test_a_cluster_without_a_keepalived_of_openshift_has_no_name(status: dict[str, Any]) -> None:
    """Where OpenShift runs no keepalived, or the URI does not say the name, no VRID is in use by it."""
    found = infrastructure(**status)
    assert cluster_name(found) == ""
    assert not platform_ids(found, build.group())


@pytest.mark.parametrize(("segment", "used"), [(None, True), ("default", True), ("dmz", False)])
def test_its_vrids_are_on_the_segment_of_the_nodes(segment: str | None, *, used: bool) -> None:
    """A group in a segment with a name of its own is on another network."""
    found = platform_ids(infrastructure(), build.group(segment=segment))
    assert found == (set(KNOWN["prod"]) if used else set())
