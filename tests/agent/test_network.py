"""Reading the node's network: memory, hardware addresses, addresses that come and go, reverse path filters."""

import asyncio
import gc
import socket
import sys
from pathlib import Path

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from hack.testbed import runs
from hack.testbed.segment import Segment
from kavip.agent import network
from kavip.agent.config.facts import InterfaceAddress
from kavip.agent.config.returnroutes import GatewayRoute
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.network import Interface, NodeNetwork, Reading, hardware_of
from kavip.agent.rtnetlink import NetworkChange
from kavip.api.address import Address, parse_address
from kavip.api.agent import MOST_HARDWARE
from kavip.vrrp.virtualips import host
from tests.agent.config.test_localize import facts, held

ROUTE = GatewayRoute(4, 1020, parse_address("198.51.100.1"), "bond0.20")
IN_SUBNET = (held("198.51.100.11/24", "bond0.20"),)


@pytest.mark.slow
async def test_no_message_outlives_a_read() -> None:
    """The messages are reference cycles; those of hundreds of VIPs take megabytes."""
    gc.collect()
    gc.disable()  # so that the result does not depend on luck
    try:
        assert (await network.read(parse_address("127.0.0.1"))).held
        assert not [each for each in gc.get_objects() if type(each) in (ifaddrmsg, rtmsg)]
    finally:
        gc.enable()


def test_other_machines_see_few_hardware_addresses() -> None:
    """Those of interfaces with an address, and of the ports of a bond; that of the node's address comes first."""
    interfaces = [
        Interface("lo", 1),
        Interface("bond0", 2, ("02:00:00:00:00:02",), "bond"),
        Interface("eth0", 3, ("02:00:00:00:00:02", "02:00:00:00:00:03"), master=2),
        Interface("eth1", 4, ("02:00:00:00:00:02", "02:00:00:00:00:04"), master=2),
        Interface("br-ex", 5, ("02:00:00:00:00:05",), "bridge"),
        Interface("cali1", 6, ("ee:ee:ee:ee:ee:ee",), "veth"),
        Interface("kube-ipvs0", 7, ("02:00:00:00:00:07",), "dummy"),
    ]
    held = [
        InterfaceAddress(host(parse_address(address), interface))
        for address, interface in (
            ("127.0.0.1", "lo"),
            ("198.51.100.7", "bond0"),
            ("192.0.2.11", "br-ex"),
            ("fe80::1", "cali1"),
            ("192.0.2.130", "kube-ipvs0"),
        )
    ]
    found = hardware_of(interfaces, held, parse_address("192.0.2.11"))
    assert found.public == tuple(f"02:00:00:00:00:0{number}" for number in (5, 2, 3, 4))
    assert found.own == {*found.public, "ee:ee:ee:ee:ee:ee", "02:00:00:00:00:07"}
    many = [Interface(f"v{n:02}", n, (f"02:00:00:00:01:{n:02x}",)) for n in range(40)]
    held = [InterfaceAddress(host(parse_address("198.51.100.7"), each.name)) for each in many]
    assert len(hardware_of(many, held, None).public) == MOST_HARDWARE


async def test_an_address_that_the_kernel_skips_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While others are deleted, the list may lack one that stays. VIPs, and what is gone, do not come back."""
    found, links = NodeNetwork("n1", None, RunDirectory(tmp_path)), (Interface("lo", socket.if_nametoindex("lo")),)
    own, other, vip = held("192.0.2.11/24", "lo"), held("192.0.2.12/24", "lo"), held("192.0.2.130/32", "lo")
    gone = NetworkChange(address="192.0.2.12", index=links[0].index, is_gone=True)

    async def facts(reading: Reading) -> tuple[InterfaceAddress, ...]:
        async def read(_: Address | None) -> Reading:
            return reading

        monkeypatch.setattr(network, "read", read)
        return (await found.facts()).held

    assert await facts(Reading(links, (vip, own, other))) == (vip, own, other)
    assert await facts(Reading(links, (other,), is_interrupted=True)) == (other, own)
    assert await facts(Reading(links, (), is_interrupted=True)) == (other, own)
    found.observe(gone)
    assert await facts(Reading(links, (), is_interrupted=True)) == (own,)
    assert await facts(Reading((), (), is_interrupted=True)) == ()
    assert await facts(Reading(links, (own,))) == (own,)
    assert await facts(Reading(links, ())) == ()


_WHILE_DELETED = """
import asyncio, subprocess
from kavip.agent.network import read

def change(verb, numbers):
    lines = "".join(f"address {verb} 198.19.{each >> 8}.{each & 255}/32 dev eth0\\n" for each in numbers)
    subprocess.run(["ip", "-batch", "-"], input=lines, text=True, check=True)

def delete():
    for each in range(400):
        change("del", [each])

async def main():
    change("add", range(2000))
    found = [await read()]
    deleting = asyncio.create_task(asyncio.to_thread(delete))
    while not deleting.done():
        found.append(await read())
    print(found[0].is_interrupted, any(each.is_interrupted for each in found))

asyncio.run(main())
"""


@pytest.mark.netns
def test_a_list_says_that_it_is_interrupted() -> None:
    """While addresses are deleted; at rest it does not."""
    with runs.in_memory() as state, Segment(state, nodes=1) as lan:
        assert lan.node("n1").exec(sys.executable, "-c", _WHILE_DELETED).stdout.split() == ["False", "True"]


def test_addresses_are_followed_between_two_looks(tmp_path: Path) -> None:
    """Events of other interfaces and broken ones do not matter."""
    found = NodeNetwork("n1", None, RunDirectory(tmp_path))
    index = socket.if_nametoindex("lo")
    found.observe(NetworkChange(address="192.0.2.130", index=index))
    assert found.held == {(parse_address("192.0.2.130"), "lo")}
    found.observe(NetworkChange(address="192.0.2.130", index=1 << 30, is_gone=True))
    found.observe(NetworkChange(interface="lo"))
    assert found.held
    found.observe(NetworkChange(address="192.0.2.130", index=index, is_gone=True))
    assert not found.held


@pytest.mark.parametrize(
    ("settings", "held_addresses", "what"),
    [
        ({}, (), ""),
        ({"bond0.20/rp_filter": 2}, (), ""),
        ({"all/rp_filter": 1, "bond0.20/rp_filter": 2}, (), ""),  # the larger one applies
        ({"bond0.20/rp_filter": 1}, IN_SUBNET, "set net.ipv4.conf.bond0/20.src_valid_mark=1"),
        ({"all/rp_filter": 1, "eth0/src_valid_mark": 1}, IN_SUBNET, "set net.ipv4.conf.bond0/20.src_valid_mark=1"),
        ({"all/rp_filter": 1, "all/src_valid_mark": 1}, IN_SUBNET, ""),
        ({"all/rp_filter": 1, "bond0.20/src_valid_mark": 1}, IN_SUBNET, ""),
        ({"all/rp_filter": 1, "bond0.20/src_valid_mark": 1}, (held("198.51.100.11/24"),), "ARP requests"),
        ({"all/rp_filter": 1, "bond0.20/src_valid_mark": 1}, (), "or set net.ipv4.conf.bond0/20.rp_filter=2"),
    ],
)
def test_what_a_strict_filter_drops_is_noted(
    settings: dict[str, int], held_addresses: tuple[InterfaceAddress, ...], what: str, tmp_path: Path
) -> None:
    """By the settings of the interface and of all; IPv6 has no such filter."""
    for name, value in settings.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{value}\n")
    ipv6 = ROUTE._replace(family=6, gateway=parse_address("2001:db8:20::1"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "_CONF", tmp_path)
        found = network.filter_problems([ROUTE, ipv6], facts(held=held_addresses))
    assert len(found) == bool(what)
    assert what in "".join(each.message for each in found)


async def test_addresses_that_come_during_a_look_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may have answered before; without them claims on a VIP would be ignored until the next look."""
    found, read = NodeNetwork("n1", None, RunDirectory(tmp_path)), network.read
    change = NetworkChange(address="192.0.2.130", index=socket.if_nametoindex("lo"))

    async def late(reach: Address | None = None) -> object:
        answer = await read(reach)
        found.observe(change)
        return answer

    monkeypatch.setattr(network, "read", late)
    await asyncio.gather(found.facts(), found.facts())  # the reconciler's, and that of a reload
    assert (parse_address("192.0.2.130"), "lo") in found.held
