"""What is read of a Node, which its kubelet writes."""

from kavip.api.cluster import MAX_NODE_ADDRESSES
from tests.support import build


def test_a_node_that_names_every_address_of_a_pool_has_but_its_first() -> None:
    """One that was taken keeps no more Services from their addresses than that, and costs no more to read."""
    named = [f"10.0.{number // 250}.{number % 250}" for number in range(20_000)]
    node = build.node("n1", "192.0.2.11", *named)
    assert len(node.addresses("InternalIP", "ExternalIP")) == len(node.host_addresses) == MAX_NODE_ADDRESSES
    assert str(node.internal_ip(4)) == "192.0.2.11"
