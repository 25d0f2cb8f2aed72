"""The addresses of a Node, whose status its kubelet writes."""

from kavip.api.cluster import MAX_NODE_ADDRESSES
from tests.support import build


def test_only_the_first_addresses_of_a_node_are_read() -> None:
    """A compromised node that reports every address of a pool blocks few of them, and costs little to read."""
    named = [f"10.0.{number // 250}.{number % 250}" for number in range(20_000)]
    node = build.node("n1", "192.0.2.11", *named)
    assert len(node.addresses("InternalIP", "ExternalIP")) == len(node.host_addresses) == MAX_NODE_ADDRESSES
    assert str(node.internal_ip(4)) == "192.0.2.11"
