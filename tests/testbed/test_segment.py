"""Machines of namespaces on one bridge."""

import signal
from pathlib import Path

import pytest

from hack.testbed import process, runs
from hack.testbed.fixtures import MakeSegment
from hack.testbed.machine import Machine
from hack.testbed.process import Process
from hack.testbed.segment import Host, Segment
from hack.testbed.systemd import Systemd

pytestmark = pytest.mark.netns


def reaches(segment: Segment, host: Host) -> bool:
    """Whether the client gets an answer."""
    return segment.client.exec("ping", "-c1", "-W1", host.ipv4, check=False).returncode == 0


def zombies(parent: Process) -> set[int]:
    """The children for which *parent* has not waited."""
    return {pid for pid in process.children([parent.pid]) if process.find(pid) is None}


def test_hosts_reach_each_other_in_both_families(segment: MakeSegment) -> None:
    """Their names and addresses are those of their objects."""
    lan = segment(nodes=2)
    first, second = lan.nodes
    assert first.exec("hostname").stdout == "n1\n"
    for address in (second.ipv4, second.ipv6):
        first.exec("ping", "-c1", "-w60", address)  # asks each second, until there is an answer


def test_a_host_can_be_cut_silenced_and_powered_off(segment: MakeSegment) -> None:
    """Each stops the answers, and each can be undone."""
    lan = segment(nodes=1)
    host = lan.node("n1")
    for hurt, heal in ((lan.disconnect, lan.reconnect), (lan.silence, lan.reconnect), (lan.power_off, lan.power_on)):
        hurt(host)
        assert not reaches(lan, host)
        heal(host)
        # the kernel reports the state of a link up to a second late (net/core/link_watch.c)
        process.wait_for(f"{host.name} answers", lambda: reaches(lan, host), timeout=60)


def test_a_power_cut_ends_everything_in_a_machine(segment: MakeSegment, tmp_path: Path) -> None:
    """Processes of any depth are gone when it returns."""
    lan = segment(nodes=1)
    host = lan.nodes[0]
    started = host.spawn("sh", "-c", "unshare --pid --fork sleep 61; true", log=tmp_path / "log")
    process.wait_for("the inner one runs", lambda: bool(host.processes("sleep")), timeout=60)
    (inner,) = host.processes("sleep")
    lan.power_off(host)
    assert not started.alive
    assert not inner.alive


def test_ended_processes_of_a_machine_are_reaped(segment: MakeSegment, tmp_path: Path) -> None:
    """The kernel reaps orphans, and the children for which they did not wait."""
    host = segment(nodes=1).nodes[0]
    orphan = host.spawn("sh", "-c", "sleep 0.01 & exec sleep 64", log=tmp_path / "log")
    process.wait_for("its child has ended", lambda: bool(zombies(orphan)), timeout=60)
    (child,) = zombies(orphan)
    orphan.signal(signal.SIGKILL)
    paths = [Path(f"/proc/{pid}") for pid in (orphan.pid, child)]
    process.wait_for("both are gone", lambda: not any(path.exists() for path in paths), timeout=60)


def test_only_processes_of_that_machine_are_killed_by_name(segment: MakeSegment, tmp_path: Path) -> None:
    """Its neighbour runs the same program and keeps it."""
    lan = segment(nodes=2)
    mine, other = (host.spawn("sleep", "62", log=tmp_path / "log") for host in lan.nodes)
    assert lan.nodes[0].kill("sleep", signal.SIGKILL) == [mine]
    assert mine.wait(60)
    assert other.alive


def test_what_a_machine_writes_to_run_and_var_stays_in_it(segment: MakeSegment) -> None:
    """The real machine's /run and /var are untouched, and its home is the same inside and outside."""
    host = segment(nodes=1).nodes[0]
    host.exec("touch", "/run/kavip-test", "/var/lib/kavip-test", str(host.home / "seen"))
    assert not Path("/run/kavip-test").exists()
    assert not Path("/var/lib/kavip-test").exists()
    assert (host.home / "seen").exists()


def test_two_segments_with_the_same_addresses_do_not_meet(segment: MakeSegment) -> None:
    """The client of one gets no answer from a host of the other."""
    one, other = segment(nodes=1), segment(nodes=1)
    one.power_off(one.nodes[0])
    assert reaches(other, other.nodes[0])
    assert not reaches(one, one.nodes[0])


def test_a_machine_can_be_taken_over(segment: MakeSegment) -> None:
    """Another process finds it by its home."""
    host = segment(nodes=1).nodes[0]
    again = Machine(host.name, host.home)
    again.attach()
    assert again.init == host.init


def test_a_machine_on_systemd_shuts_down_and_leaves_nothing() -> None:
    """Its network stops before it is off, the real machine keeps its files, and no cgroup of it is left."""
    with runs.temporary() as state:
        host = Host("n1", state / "n1", 1)
        host.init_system = Systemd({"etc/inside": "yes"})
        with Segment(state, nodes=0, others=[host]):
            host.exec("systemctl", "is-system-running", "--wait")
            assert host.exec("cat", "/etc/inside").stdout == "yes"
            host.exec("touch", "/tmp/inside", "/etc/touched-inside")
            cgroups = [Path(line) for line in (host.home / f"machine{runs.CGROUPS}").read_text().splitlines()]
            assert any(path.exists() for path in cgroups)
            host.exec("systemctl", "poweroff")
            process.wait_for("it is off", lambda: not host.running, timeout=120)
    assert not any(Path(path).exists() for path in ("/tmp/inside", "/etc/touched-inside", "/etc/inside"))
    assert not any(path.exists() for path in cgroups)
