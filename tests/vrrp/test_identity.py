"""Nodes with different identities do not hear each other."""

import pytest

from kavip.vrrp.identity import agree, identity_of
from tests.support import build
from tests.vrrp.samples import NEW, annotated, model, nodes

SERVICES = [annotated("a/web", "192.0.2.130", "192.0.2.131", "2001:db8::1"), annotated("b/one", "192.0.2.9")]
CHANGES = {
    "unicast_enabled": False,
    "vrrp_version": 2,
    "interface": "eth1",
    "vrrp_interface": "eth1",
}


@pytest.mark.parametrize("field", CHANGES)
def test_nodes_with_different_fields_do_not_agree(field: str) -> None:
    """Each of these fields makes two masters where two nodes differ in it."""
    one, other = (
        identity_of(model(build.group(**spec), SERVICES, nodes(2)).instances[0])
        for spec in (NEW, {**NEW, field: CHANGES[field]})
    )
    assert not agree(one, other)
    assert agree(one, one)


@pytest.mark.parametrize("version", [2, 3])
def test_nodes_with_different_intervals_do_not_agree(version: int) -> None:
    """
    This holds in version 3 too: a backup with a shorter interval does not wait for the master's next advertisement.
    """
    one, other = (
        identity_of(
            model(
                build.group(vrrp_version=version, advert_interval_milliseconds=interval), SERVICES, nodes(2)
            ).instances[0]
        )
        for interval in (1000, 2000)
    )
    assert not agree(one, other)
