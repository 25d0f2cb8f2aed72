"""The source addresses and peers in a localised text, in a time that grows with the text and no faster."""

import time
from collections.abc import Callable

import pytest

from kavip.agent.config.localize import localize
from kavip.agent.config.model import LocalizedConfig
from kavip.agent.config.sources import running_addresses
from kavip.api.address import parse_address
from tests.agent import mounts
from tests.agent.config.test_localize import facts

VIPS = {"shop/web": "192.0.2.130,2001:db8:2::130"}
TEXT = mounts.rendered(VIPS)
MANY = 12_000


def test_the_running_addresses_of_a_node() -> None:
    """Its own source addresses, and those of its peers."""
    found = localize(mounts.mounted(TEXT), facts())
    assert isinstance(found, LocalizedConfig)
    own, others = running_addresses(found.text)
    assert own == {parse_address("192.0.2.11"), parse_address("2001:db8:2::11")}
    assert others and parse_address("192.0.2.12") in others and not own & others


def interfaces() -> str:
    """A text with the interface of each instance again and again, and no source address."""
    text = mounts.rendered(VIPS, unicast_enabled=False)
    return text.replace("    interface eth0\n", "    interface eth0\n" * MANY)


def lists_of_peers() -> str:
    """A text with lists of peers, of which none ends where kavip ends it."""
    text = TEXT.replace("    unicast_peer {\n", "    unicast_peer {\n        }\n" * MANY)
    return text.replace("\n    }\n", "\n        }\n")


def sources() -> str:
    """A text with many source addresses of this node that it does not have."""
    lines = (f"    @n1 unicast_src_ip 10.9.{number >> 8}.{number & 255}\n" for number in range(MANY))
    return TEXT.replace("    unicast_peer {\n", f"{''.join(lines)}    unicast_peer {{\n")


@pytest.mark.parametrize("made", [interfaces, lists_of_peers, sources])
def test_no_text_takes_long(made: Callable[[], str]) -> None:
    """Somebody has edited the ConfigMap, and each node of the group reads it."""
    text = made()
    began = time.process_time()
    localize(mounts.mounted(text), facts())
    running_addresses(text)
    assert time.process_time() - began < 2.0
