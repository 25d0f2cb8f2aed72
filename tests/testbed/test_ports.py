"""Ports that programs receive before they start."""

import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from hack.testbed import ports


def test_no_client_can_have_taken_what_is_offered() -> None:
    """Every port is below those of clients, free, and offered once."""
    found = ports.free_ports(100) + ports.free_ports(100)
    assert len({*found}) == 200
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(found) < first
    for port in found:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_what_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one that is free is offered."""
    taken, free = ports.free_ports(2)
    offers = iter([taken, free])
    monkeypatch.setattr(ports, "_offers", lambda: offers)
    with socket.create_server(("127.0.0.1", taken)):
        assert ports.free_ports(1) == [free]


OTHER = """
import sys
from hack.testbed import ports
print(*ports.free_ports(100), flush=True)
sys.stdin.read()
"""


def test_two_processes_never_offer_the_same() -> None:
    """Each process has blocks of its own while it lives, although nothing listens there yet."""
    ours = {*ports.free_ports(300)}
    with subprocess.Popen(
        [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout
        theirs = {int(word) for word in other.stdout.readline().split()}
        again = {*ports.free_ports(300)}
        other.communicate("")
    assert len(theirs) == 100
    assert theirs.isdisjoint(ours | again)


def test_a_block_that_another_process_has_is_passed_over() -> None:
    """The kernel decides which process has a block."""
    begins = range(12_000, 12_000 + 3 * ports._BLOCK, ports._BLOCK)
    with ExitStack() as stack:
        for begin in begins:  # some parallel run may have one of them, which is as good
            claim = stack.enter_context(socket.socket(socket.AF_UNIX))
            with suppress(OSError):
                claim.bind(f"\0kavip-ports-{begin}")
        assert next(ports._blocks(begins)) == 0


def test_a_machine_whose_clients_may_take_any_port_has_some_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernel chooses the ports there."""
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "_CLIENTS", tmp_path / "range")
    monkeypatch.setattr(ports, "_offers", ports._offers.__wrapped__)
    assert len({*ports.free_ports(5)}) == 5
