"""The agent's port under load from many connections on a real network."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path

import pytest

from hack.testbed.process import Process
from hack.testbed.segment import Host, Segment
from kavip import names
from kavip.agent.http import server
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod, connected
from tests.http.connectionload import connection_load

pytestmark = pytest.mark.netns

CONNECTIONS = 500
ROUNDS = 25
WEB = mounts.rendered({"shop/web": "192.0.2.130"})
PROBES = (names.LIVE_PATH, names.READY_PATH, names.STATE_PATH)
MOST = server.OWN + server.CLIENTS + server.DENIED + server.BURST
OTHERS = 8  # files that the agent opens for a moment: its configuration, a netlink socket


def started(pod: Pod, *flags: str) -> Pod:
    """*pod* with these flags, after its configuration runs."""
    pod.flags = flags
    config_hash = pod.config.write(WEB)
    pod.start()
    pod.runs(config_hash)
    return pod


@contextmanager
def loaded(client_host: Host, pod: Pod, log: Path) -> Iterator[Callable[[], int]]:
    """Many connections from *client_host* to the agent; yields a function that counts how many were opened."""

    def spawn(command: Sequence[str], *, log: Path) -> Process:
        return client_host.spawn(*command, log=log)

    with connection_load(pod.host.ipv4, names.AGENT_PORT, CONNECTIONS, log=log, spawn=spawn) as opened:
        yield opened


def descriptors(pod: Pod) -> int:
    """The number of files that the agent has open."""
    assert pod.agent is not None
    return len(list(Path(f"/proc/{pod.agent.pid}/fd").iterdir()))


def resident(pod: Pod) -> int:
    """The peak memory of the agent in KiB."""
    assert pod.agent is not None
    lines = Path(f"/proc/{pod.agent.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def served(pod: Pod, scraper: Host) -> list[int]:
    """The statuses of kubelet's probes, and of a scrape from *scraper*."""
    statuses = [pod.get(path)[0] for path in PROBES]
    return [*statuses, pod.get(names.METRICS_PATH, source=scraper)[0]]


def test_probes_and_scrapes_are_answered_under_load(pod: MakePod, lan: Segment, tmp_path: Path) -> None:
    """Memory and open files stay within limits."""
    node, scraper = started(pod("n1")), lan.node("n2")
    assert served(node, scraper) == [200] * 4
    memory, files = resident(node), descriptors(node)
    with loaded(lan.client, node, tmp_path / "load.log") as opened:
        found = {(number, *served(node, scraper)) for number in range(ROUNDS)}
        more = descriptors(node) - files
        before = opened()
        node.wait_until("more connections are opened", lambda: opened() > before + CONNECTIONS)
    assert found == {(number, 200, 200, 200, 200) for number in range(ROUNDS)}
    assert more <= MOST + OTHERS
    assert resident(node) - memory < 8 << 10
    node.wait_until("the files are closed", lambda: descriptors(node) <= files)


def test_a_client_that_is_not_allowed_gets_403_and_takes_no_slot(pod: MakePod, lan: Segment, tmp_path: Path) -> None:
    """Many of them close no connection of allowed clients."""
    scraper = lan.node("n2")
    node = started(pod("n1"), f"--allowed-cidrs={ip_network(scraper.ipv4)}")
    assert node.get(names.METRICS_PATH, source=lan.client) == (403, "Forbidden\n")
    assert served(node, scraper) == [200] * 4
    with loaded(lan.client, node, tmp_path / "load.log") as opened:
        before = opened()  # the load may pause meanwhile: each connection may wait five seconds
        waiting = [connected(scraper.netns, node.host.ipv4, names.AGENT_PORT) for _ in range(server.CLIENTS)]
        node.wait_until("more connections are opened", lambda: opened() > before)
        for each in waiting:
            each.sendall(b"GET /state HTTP/1.1\r\n\r\n")
        answers = [each.recv(12) for each in waiting]
        found = served(node, scraper)
    assert answers == [b"HTTP/1.1 200"] * server.CLIENTS
    assert found == [200] * 4
    for each in waiting:
        each.close()


def status(source: Host, address: str) -> bytes:
    """The first bytes of the agent's answer at *address* to *source*."""
    with connected(source.netns, address, names.AGENT_PORT) as client:
        client.sendall(b"GET /state HTTP/1.1\r\n\r\n")
        return client.recv(12)


def test_the_node_itself_is_allowed_on_every_address(pod: MakePod, lan: Segment) -> None:
    """Other machines are not, on the same addresses."""
    node, other = pod("n1"), lan.node("n2")
    node.flags = ("--node-ip=", "--allowed-cidrs=203.0.113.0/24")
    node.config.write(WEB)
    node.start()
    addresses = (node.host.ipv4, node.host.ipv6)
    assert [status(node.host, each) for each in (*addresses, "127.0.0.1", "::1")] == [b"HTTP/1.1 200"] * 4
    assert [status(other, each) for each in addresses] == [b"HTTP/1.1 403"] * 2
