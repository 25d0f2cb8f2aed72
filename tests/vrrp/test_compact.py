"""The compact notation: expanded it is the text it was made of, byte for byte, and it is safe to expand any text."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kavip.api.group import GroupVirtualIP, PasswordAuth, SecretRef
from kavip.vrrp import compact
from kavip.vrrp.addedlines import published_lines
from kavip.vrrp.compact import MARKER, Unreadable, encode, expand, in_full, is_compact
from kavip.vrrp.members import Peer
from kavip.vrrp.running import instances_without_preemption, node_orders, running_instances, running_nodes
from tests.support import build
from tests.vrrp.samples import NEW, SAMPLES, annotated, conf, nodes, shared

OPEN = "vrrp_instance "
OWN = {"virtual_ips": [GroupVirtualIP("192.0.2.200"), GroupVirtualIP("2001:db8:2::200")]}
SPECS: dict[str, dict[str, Any]] = {
    "unicast": {**NEW, **OWN},
    "multicast": {**NEW, **OWN, "unicast_enabled": False},
    "password": {**OWN, "unicast_enabled": True, "password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"))},
    "Shared": {**NEW, **OWN, "instances": shared(3), "no_preempt": True},
}
PEERS = st.lists(
    st.builds(
        lambda number, ipv6, turn, level: Peer(
            f"n{number}",
            nodes(number)[-1].ipv4,
            nodes(number)[-1].ipv6 if ipv6 else None,
            drain_turn=turn,
            preference=level,
        ),
        st.integers(1, 12),
        st.booleans(),
        st.sampled_from([0, 0, 0, 1, 2]),
        st.integers(0, 2),
    ),
    max_size=6,
    unique_by=lambda peer: peer.name,
)
LINES = st.sampled_from(
    [
        "vrrp_instance a {",
        "    unicast_src_ip 192.0.0.8",
        "    unicast_src_ip 100::1",
        "    priority 1",
        *(f"    @{name} priority {number}" for name in ("n1", "n%s", "%") for number in ("7", "251")),
        *(f"    @n{number} unicast_src_ip {address}" for number in (1, 2) for address in ("192.0.2.1", "fd00::1")),
        *(f"        @^n{number} 192.0.2.{number} min_ttl 255" for number in (1, 2)),
        "        @^n1 192.0.2.1",
        "    unicast_peer {",
        "    @^n1 nopreempt",
        "    }",
        "",
        "}",
    ]
)
SHORT = st.sampled_from(
    [
        *("    $priority 7", "    $priority 7 251", "    $priority", "    $priority 7 ", "    $priority 7  9"),
        *("    $unicast_src_ip", "        $unicast_peer", "$unicast_peer", "    $priority x", "    $ROOT", "$"),
    ]
)


def parts_of(text: str) -> Iterator[tuple[str, str]]:
    """The head of *text* and its instances, each with a name."""
    head, *blocks = text.split(f"\n{OPEN}")
    yield "", head + ("\n" if blocks else "")
    for number, each in enumerate(blocks):
        yield each.partition(" ")[0], f"{OPEN}{each}" + ("\n" if number + 1 < len(blocks) else "")


def encoded(parts: Iterable[tuple[str, str]]) -> str:
    """*parts* in the notation."""
    found = encode(parts)
    assert is_compact(found)
    return found


def assert_the_same(text: str) -> None:
    """What is expanded, and what is read without that, is the same as of *text*."""
    found = encoded(parts_of(text))
    assert expand(found) == in_full(found) == text
    assert found == encoded([("", text)])
    assert running_instances(found) == running_instances(text)
    assert running_nodes(found) == running_nodes(text)
    assert published_lines(found) == published_lines(text)
    assert instances_without_preemption(found) == instances_without_preemption(text)
    assert node_orders(in_full(found)) == node_orders(text)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_the_same_again(name: str) -> None:
    """Every golden text is the same after it was in the notation, and its instances and nodes are read in both."""
    assert_the_same(SAMPLES[name]())


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@given(peers=PEERS, count=st.integers(0, 4))
def test_every_text_is_the_same_again(spec: dict[str, Any], peers: list[Peer], count: int) -> None:
    """So is the text of a group with any nodes: drained, preferred, without an address of a family, none at all."""
    services = [annotated(f"a/s{n}", f"192.0.2.{100 + n}", f"2001:db8::{n}", spread=n == 2) for n in range(count)]
    assert_the_same(conf(build.group(**spec), services, peers))


@given(st.lists(LINES, max_size=40).map("\n".join))
@example("    @n1 priority 7")
@example("")
def test_any_lines_are_the_same_again(text: str) -> None:
    """So is any text without a ``$``, whatever the order of its lines."""
    assert expand(encoded(parts_of(text))) == expand(encoded([("", text)])) == text


@given(st.lists(st.one_of(LINES, SHORT), max_size=40).map("\n".join))
def test_any_text_can_be_expanded_or_not(text: str) -> None:
    """A text in the notation, whatever its lines, is expanded, or the problem names a line."""
    found = expand(f"{MARKER}{text}")
    assert isinstance(found, Unreadable) or not any(line.lstrip().startswith("$") for line in found.split("\n"))
    assert expand(text) == text


@pytest.mark.parametrize(
    "line",
    [
        *(
            "    $priority 7",
            "    $priority 7 8 9",
            "    $priority 7  8",
            "    $priority 7 8 ",
            "    $priority seven 8",
        ),
        *("    $unicast_src_ip", "        $unicast_peer", "    $unicast_peer", "$", "  $macro"),
    ],
)
def test_a_line_that_stands_for_nothing_is_a_problem(line: str) -> None:
    """A line without lines above it, with other numbers, or with another keyword, refuses the text; it is named."""
    known = "    @n1 priority 1\n    @n2 priority 2\n    $priority 3 4\n    unicast_src_ip 100::1\n"
    found = expand(f"{MARKER}{known}{line}\n")
    assert found == Unreadable("line 6 stands for no lines above it")
    assert in_full(f"{MARKER}{known}{line}\n") == f"{MARKER}{known}{line}\n"


def test_the_families_are_kept_apart() -> None:
    """The lines of an IPv6 instance are not those of an IPv4 instance above it."""
    peer, other = "        @^n1 192.0.2.1 min_ttl 255\n", "        @^n1 fd00::1 min_ttl 255\n"
    four, six = (
        f"{OPEN}a {{\n    unicast_src_ip 192.0.0.8\n{peer}}}\n",
        f"{OPEN}b {{\n    unicast_src_ip 100::1\n{other}}}\n",
    )
    found = encoded([("", four + six + four + six)])
    assert found.count(peer) == found.count(other) == 1
    assert expand(found) == four + six + four + six


def test_what_is_expanded_is_bounded() -> None:
    """A ConfigMap full of lines that stand for half a megabyte each is refused before that memory is taken."""
    run = "".join(f"        @^n{number} 192.0.2.1\n" for number in range(20_000))
    found = expand(f"{MARKER}{run}" + "        $unicast_peer\n" * 20_000)
    assert found == Unreadable(f"in full it has more than {compact.MOST_EXPANDED:,} bytes")


def test_a_text_with_a_dollar_is_not_compact() -> None:
    """kavip writes no ``$``; a text with one stays as it is, and is not taken for the notation."""
    assert encode([("", "global_defs {\n}\n"), ("a", "$x\n")]) == ""
    assert expand("$x\n") == in_full("$x\n") == "$x\n"
