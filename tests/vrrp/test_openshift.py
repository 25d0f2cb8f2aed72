"""The VRIDs of OpenShift clusters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.errors import BadInput
from kavip.vrrp.openshift import router_ids

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
