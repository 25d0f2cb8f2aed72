"""The text of keepalived-operator is read as its daemons read it."""

import pytest

from kavip.api.address import parse_address
from kavip.vrrp import operatorconfig
from tests.keepalived_operator.oldobjects import conf, instance

VIP = "192.0.2.140"


def addresses(*texts: str) -> tuple[object, ...]:
    """Parsed and sorted."""
    return tuple(sorted(map(parse_address, texts)))


def test_a_plain_instance() -> None:
    """Absent values are those of the daemon: version 2, one second, multicast, priority 100."""
    (found,) = operatorconfig.read_instances(conf(instance("shop/web", 7, VIP, "192.0.2.139")))
    assert (found.name, found.router_id, found.family, found.interface) == ("shop/web", 7, 4, "eth0")
    assert (found.version, found.interval, found.priority, found.authenticated) == (2, "1", 100, False)
    assert (found.addresses, found.peers) == (addresses("192.0.2.139", VIP), frozenset())


def test_all_of_an_identity_is_read() -> None:
    """Peers, password, priorities of spread addresses, lines of users and a check of policy Local are read."""
    text = conf(
        instance("a/spread/192.0.2.141", 2, "192.0.2.141", owner="edge-x7k2p", peers=["192.0.2.11", "192.0.2.12"]),
        instance("a/local", 3, VIP, health_port=30123, password="s3cr#t", lines=["advert_int 2", "track_src_ip "]),
        extra="vrrp_iptables my-keepalived",
    )
    local, spread = operatorconfig.read_instances(text)
    assert (local.interval, local.authenticated) == ("2", True)
    assert (spread.priority, spread.peers) == (200, frozenset(addresses("192.0.2.11", "192.0.2.12")))
    assert operatorconfig.read_password(text) == "s3cr", "keepalived ends it at a comment"


@pytest.mark.parametrize(
    ("vips", "family", "kept"),
    [((VIP, "2001:db8::1"), 4, (VIP,)), (("2001:db8::1", VIP), 6, ("2001:db8::1",))],
)
def test_the_family_of_the_first_address_runs(vips: tuple[str, ...], family: int, kept: tuple[str, ...]) -> None:
    """keepalived drops the addresses and peers of the other family; IPv6 always has version 3, without a password."""
    text = conf(instance("a/dual", 5, *vips, peers=["192.0.2.11"], password="secret"))
    (found,) = operatorconfig.read_instances(text)
    assert (found.family, found.addresses, found.version) == (family, addresses(*kept), 2 if family == 4 else 3)
    assert bool(found.peers) == found.authenticated == (family == 4)


@pytest.mark.parametrize(
    "text",
    ["", "vrrp_instance a/b {", "}}}} {", conf(instance("a/b", 0, VIP)), conf(instance("a/b", 7)), "\x00{{{", "@ @ {"],
)
def test_instances_that_do_not_run_are_skipped(text: str) -> None:
    """An instance without a VRID or an address does not run, and an empty text has none."""
    assert operatorconfig.read_instances(text) == ()


def test_an_endless_number_is_ignored() -> None:
    """Somebody has edited the text: Python refuses to read such a number."""
    number = "9" * 4_301
    text = conf(instance("a/b", 7, VIP, lines=[f"priority {number}"]))
    assert [each.priority for each in operatorconfig.read_instances(text)] == [100]
    text = text.replace("virtual_router_id 7", f"virtual_router_id {number}")
    assert number in text and operatorconfig.read_instances(text) == ()


@pytest.mark.parametrize(
    ("written", "read"), [("0", "1"), ("256", "1"), ("300.5", "1"), ("1.0", "1.0"), ("255", "255")]
)
def test_an_interval_that_keepalived_ignores_is_a_second(written: str, read: str) -> None:
    """Others stay as they are written."""
    (found,) = operatorconfig.read_instances(conf(instance("a/b", 7, VIP, lines=[f"advert_int {written}"])))
    assert found.interval == read


def test_injected_text_is_ignored() -> None:
    """Injected text of a Service is not read as an interval or an interface."""
    text = conf(instance("a/b", 7, VIP, lines=['advert_int "1;rm"', "interface ../../x"]))
    (found,) = operatorconfig.read_instances(text)
    assert (found.interval, found.interface) == ("1", "")
