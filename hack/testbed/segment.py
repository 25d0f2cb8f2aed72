"""Machines on one layer-2 segment: what keepalived needs, and what a cluster is built on. It needs root.

The bridge lives in a machine of its own, and cables are made inside it, so this machine's network is never touched and
two segments with the same addresses do not meet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from hack.testbed import need, process
from hack.testbed.errors import TestbedError
from hack.testbed.machine import Machine
from hack.testbed.place import run

MOST = 15  # nodes: their addresses end below .32, and VIP pools of tests begin at .128
CLIENT = 20
BOTH: tuple[int, ...] = (4, 6)  # families


@dataclass(frozen=True, slots=True)
class Address:
    """The addresses of a host, by its number on the segment."""

    number: int

    @property
    def ipv4(self) -> str:
        """In 192.0.2.0/24 (RFC 5737)."""
        return f"192.0.2.{10 + self.number}"

    @property
    def ipv6(self) -> str:
        """In 2001:db8:2::/64 (RFC 3849), with the same last digits."""
        return f"2001:db8:2::{10 + self.number}"

    @property
    def mac(self) -> str:
        """The same after a power cut, as a real card's is: neighbours need not learn it again."""
        return f"02:00:c0:00:02:{10 + self.number:02x}"


class Host(Machine):
    """A machine with a network card, eth0, on a segment."""

    def __init__(self, name: str, home: Path, number: int) -> None:
        super().__init__(name, home)
        self.number = number
        self.address = Address(number)
        self.ipv4 = self.address.ipv4
        self.ipv6 = self.address.ipv6
        self.families = BOTH
        self.routes: tuple[str, ...] = ()  # for `ip route add`, each time it is switched on

    def spoken(self, *texts: str) -> tuple[str, ...]:
        """Those of *texts*, be they addresses, ranges or routes, that are of its families."""
        return tuple(text for text in texts if (6 if ":" in text else 4) in self.families)


class Segment:
    """A bridge, nodes n1, n2, ... and a client. Use it as a context manager."""

    def __init__(self, state: Path, *, nodes: int = 3, others: Sequence[Host] = ()) -> None:
        """`others`: hosts to plug in besides; with nodes=0 they are the only ones."""
        self.state = state
        self.bridge = Machine("lan", state / "lan")
        self.nodes = tuple(Host(name, state / name, number) for number, name in numbered(nodes))
        self.client = Host("client", state / "client", CLIENT)
        self.hosts: tuple[Host, ...] = (*others, *self.nodes, self.client)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Switch everything on."""
        need.namespaces("a segment of machines", need.SEGMENT)
        try:
            self.bridge.start()
            _ip(self.bridge, ["link add br0 type bridge mcast_snooping 0", "link set br0 up"])
            for host in self.hosts:
                self.power_on(host)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Switch everything off; nothing stays but the files of the hosts."""
        for machine in (*self.hosts, self.bridge):
            machine.stop()

    def attach(self) -> None:
        """Take over a segment that another process has started."""
        for machine in (*self.hosts, self.bridge):
            machine.attach()

    def node(self, name: str) -> Host:
        """The host of that name."""
        found = next((host for host in self.hosts if host.name == name), None)
        if found is None:
            raise TestbedError(f"no host {name} here; there are {', '.join(host.name for host in self.hosts)}")
        return found

    def power_on(self, host: Host) -> None:
        """Start a host and plug its cable in."""
        host.start()
        port = port_of(host.name)
        _ip(
            self.bridge,
            [
                f"link add {port} type veth peer name eth0 address {host.address.mac} netns {host.init}",
                f"link set {port} master br0 up",
            ],
        )
        addresses = host.spoken(f"addr add {host.ipv4}/24 dev eth0", f"addr add {host.ipv6}/64 dev eth0 nodad")
        routes = (f"route add {route}" for route in host.spoken(*host.routes))
        _ip(host, ["link set eth0 up", *addresses, *routes])

    def power_off(self, host: Host) -> None:
        """Cut the power of a host: silence on the segment first, then everything in it is gone."""
        _ip(self.bridge, [f"link del {port_of(host.name)}"])
        host.stop()

    def disconnect(self, host: Host) -> None:
        """Set the port of the switch down, as if the cable was pulled: the host sees its link go down."""
        _ip(self.bridge, [f"link set {port_of(host.name)} down"])

    def silence(self, host: Host) -> None:
        """Lose every frame from and to a host, whose link stays up: a failure further away."""
        run(self.bridge.command("bridge", "link", "set", "dev", port_of(host.name), "state", "0"))

    def add_bridge(self, name: str) -> None:
        """Add another network beside the segment, for cards that are plugged in with `plug`."""
        _ip(self.bridge, [f"link add {name} type bridge mcast_snooping 0", f"link set {name} up"])

    def plug(self, host: Machine, card: str, *, bridge: str, addresses: Iterable[str] = ()) -> None:
        """Put the network card `card` into a host, with its cable in a bridge."""
        made = [f"link add {card}-{host.name} type veth peer name {card} netns {host.init}"]
        _ip(self.bridge, [*made, f"link set {card}-{host.name} master {bridge} up"])
        _ip(host, [f"link set {card} up", *(f"addr add {each} dev {card} nodad" for each in addresses)])

    def unplug(self, host: Machine, card: str) -> None:
        """Take out a card of `plug`."""
        _ip(self.bridge, [f"link del {card}-{host.name}"])

    def set_link(self, host: Machine, card: str, state: str) -> None:
        """Set the port of the switch `up` or `down`; the host sees the link of its card change."""
        _ip(self.bridge, [f"link set {card}-{host.name} {state}"])

    def reconnect(self, host: Host) -> None:
        """End a `disconnect` or a `silence`; the bridge forwards on the port after the kernel has seen the link."""
        _ip(self.bridge, [f"link set {port_of(host.name)} up"])
        forward = self.bridge.command("bridge", "link", "set", "dev", port_of(host.name), "state", "3")

        def opened() -> bool:
            return run(forward, check=False).returncode == 0

        process.wait_for(f"the port of {host.name} is open", opened, timeout=60, interval=0.01)


def numbered(nodes: int) -> list[tuple[int, str]]:
    """The numbers and names of that many nodes."""
    if not 0 <= nodes <= MOST:
        raise TestbedError(f"a segment has up to {MOST} nodes, not {nodes}")
    return [(number, f"n{number}") for number in range(1, nodes + 1)]


def port_of(name: str) -> str:
    """The port of the switch in which the cable of a host is."""
    return f"p-{name}"


def _ip(machine: Machine, commands: Iterable[str]) -> None:
    """Run `ip` commands in the network of a machine; pids that they mention are those of the real machine."""
    run(machine.command("ip", "-batch", "-"), input="\n".join(commands))
