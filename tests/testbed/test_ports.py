"""Ports that programs are told."""

import socket
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


def test_a_machine_whose_clients_may_take_any_port_has_some_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There the kernel chooses."""
    (tmp_path / "range").write_text("1024\t65535\n")
    monkeypatch.setattr(ports, "_CLIENTS", tmp_path / "range")
    monkeypatch.setattr(ports, "_offers", ports._offers.__wrapped__)
    assert len({*ports.free_ports(5)}) == 5
