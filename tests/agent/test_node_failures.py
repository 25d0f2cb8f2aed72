"""Failures of a node beside a real keepalived: they are reported, and no VIP is lost without need."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hack.testbed import process
from kavip import names
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod, kill_together
from tests.agent.podstates import ONE, TWO, WEB, WEB_VIP, leader_and_backup, master, start_only_pod, started

pytestmark = pytest.mark.netns

CART_VIP = "192.0.2.131"


@contextmanager
def undisturbed(pod: Pod) -> Iterator[None]:
    """Assert that no VIP of *pod* moves meanwhile."""
    before, held = pod.transitions(), pod.addresses()
    yield
    assert (pod.transitions(), pod.addresses()) == (before, held)


def test_a_node_that_loses_its_address_gives_its_vips_away(pod: MakePod) -> None:
    """It could not answer for them; it takes them again with the address."""
    pods = [started(pod(name), ONE) for name in ("n1", "n2")]
    first, second = leader_and_backup(pods, WEB)
    ipv4, ipv6 = f"{first.host.ipv4}/24", f"{first.host.ipv6}/64"
    first.host.exec("ip", "address", "del", ipv4, "dev", "eth0")
    first.host.exec("ip", "address", "del", ipv6, "dev", "eth0")
    try:
        first.wait_until("the log has the line", lambda: "is on none of its interfaces" in first.logs())
        first.wait_until("its VIP is gone", lambda: not first.addresses() & {WEB_VIP, "2001:db8:2::130"})
        master(second, WEB, f"{WEB}/v6")
    finally:
        first.host.exec("ip", "address", "add", ipv4, "dev", "eth0")
        first.host.exec("ip", "address", "add", ipv6, "dev", "eth0", "nodad")
    master(first, WEB)
    first.wait_until("all is well", lambda: first.state()["note"] == "" and left_out(first) == [])
    first.host.exec("ip", "address", "del", ipv6, "dev", "eth0")
    try:
        first.wait_until("IPv6 is left out", lambda: [each["name"] for each in left_out(first)] == [f"{WEB}/v6"])
        master(first, WEB)
    finally:
        first.host.exec("ip", "address", "add", ipv6, "dev", "eth0", "nodad")
    first.wait_until("IPv6 is back", lambda: left_out(first) == [])


def test_a_tentative_address_is_waited_for(pod: MakePod) -> None:
    """keepalived would stay in FAULT, so IPv6 is excluded until the kernel uses the address."""
    node = pod("n1")
    dad, address = "/proc/sys/net/ipv6/conf/eth0", (f"{node.host.ipv6}/64", "dev", "eth0")

    def comes_after(questions: int) -> None:
        node.host.exec("sh", "-c", f"echo 1 > {dad}/accept_dad; echo {questions} > {dad}/dad_transmits")
        node.host.exec("ip", "address", "del", *address)
        node.host.exec("ip", "address", "add", *address)

    try:
        comes_after(255)  # one each second
        started(node, ONE)
        master(node, WEB)
        assert [each["name"] for each in left_out(node)] == [f"{WEB}/v6"]
        assert left_out(node)[0]["reason"].endswith("(tentative)")
        comes_after(1)
        master(node, f"{WEB}/v6")
        node.wait_until("nothing is left out", lambda: left_out(node) == [])
        assert node.transitions()[WEB] == (1, 0)
    finally:
        node.host.exec("sh", "-c", f"echo 0 > {dad}/accept_dad; echo 1 > {dad}/dad_transmits")
        node.host.exec("ip", "address", "del", *address)
        node.host.exec("ip", "address", "add", *address, "nodad")


def test_an_interface_that_vanishes_takes_its_own_vips_and_no_other(pod: MakePod) -> None:
    """Its instances are excluded until it is back; both are noticed at once."""
    node = pod("n1")
    text = TWO.replace(f"{CART_VIP}/32 dev eth0", f"{CART_VIP}/32 dev vip0")
    add = ("ip", "link", "add", "vip0", "type", "bridge")
    node.host.exec(*add)
    try:
        node.host.exec("ip", "link", "set", "vip0", "up")
        master(started(node, text), WEB, "shop/cart")
        before = node.transitions()[WEB]
        node.host.exec("ip", "link", "del", "vip0")
        node.wait_until("it is left out", lambda: [each["name"] for each in left_out(node)] == ["shop/cart"])
        assert left_out(node)[0]["reason"].startswith("interface vip0 does not exist on node n1")
        assert node.state()["configHash"] == mounts.hash_of(text)
        node.host.exec(*add)
        node.host.exec("ip", "link", "set", "vip0", "up")
        node.wait_until("it runs again", lambda: left_out(node) == [])
        master(node, "shop/cart")
        assert CART_VIP in node.host.exec("ip", "address", "show", "dev", "vip0").stdout
        assert node.transitions()[WEB] == before
    finally:
        node.host.exec("ip", "link", "del", "vip0", check=False)


def test_an_interface_that_the_group_names_is_missed_before_its_first_vip(pod: MakePod) -> None:
    """Until it exists, which is noticed at once although the text does not name it."""
    node = started(pod("n1"), mounts.rendered({}), interfaces=["eth0", "vip0"])
    node.wait_until("it is missed", lambda: node.state()["missingInterfaces"] == ["vip0"])
    assert [each["code"] for each in node.state()["notes"]] == ["InterfaceMissing"]
    assert (node.state()["refused"], left_out(node)) == ("", [])
    try:
        node.host.exec("ip", "link", "add", "vip0", "type", "bridge")
        node.wait_until("all is well", lambda: not node.state()["missingInterfaces"] and not node.state()["notes"])
    finally:
        node.host.exec("ip", "link", "del", "vip0", check=False)


def test_an_interface_that_is_made_anew_serves_again(pod: MakePod) -> None:
    """Within a moment, so that no look at the node finds it missing: another one with the same name."""
    node = pod("n1")
    text = TWO.replace(f"{CART_VIP}/32 dev eth0", f"{CART_VIP}/32 dev vip0")
    made = "ip link add vip0 type bridge; ip link set vip0 up"
    node.host.exec("sh", "-c", made)
    try:
        master(started(node, text), WEB, "shop/cart")
        before = node.transitions()[WEB]
        node.host.exec("sh", "-c", f"ip link del vip0; {made}")
        node.wait_until(
            "the VIP is there",
            lambda: CART_VIP in node.host.exec("ip", "address", "show", "dev", "vip0").stdout,
        )
        master(node, "shop/cart")
        assert node.transitions()[WEB] == before
    finally:
        node.host.exec("ip", "link", "del", "vip0", check=False)


def test_an_interface_that_has_its_name_back_serves_again(pod: MakePod) -> None:
    """keepalived alone would stay backup."""
    pods = [started(pod(name), mounts.rendered({WEB: WEB_VIP})) for name in ("n1", "n2")]
    first, second = leader_and_backup(pods, WEB)
    host = first.host
    host.exec("ip", "link", "set", "eth0", "down")
    host.exec("ip", "link", "set", "eth0", "name", "else0")
    host.exec("ip", "link", "set", "else0", "up")
    master(second, WEB)
    first.wait_until("it is refused", lambda: "interface eth0 does not exist" in first.state()["refused"])
    host.exec("ip", "link", "set", "else0", "down")
    host.exec("ip", "link", "set", "else0", "name", "eth0")
    host.exec("ip", "link", "set", "eth0", "up")
    host.exec("ip", "address", "add", f"{host.ipv6}/64", "dev", "eth0", "nodad")
    master(first, WEB)
    first.wait_until("all is well", lambda: first.state()["refused"] == "")


def left_out(pod: Pod) -> list[dict[str, str]]:
    """The instances that *pod* excludes."""
    return list(pod.state()["leftOut"])


def test_a_deleted_secret_stops_nothing(pod: MakePod) -> None:
    """The state reports it; keepalived runs on, also after agent and keepalived restart."""
    node = pod("n1")
    text = mounts.rendered({WEB: WEB_VIP}, nodes=1, **mounts.WITH_PASSWORD)
    node.password.parent.mkdir(parents=True, exist_ok=True)
    node.password.write_text(mounts.PASSWORD)
    master(started(node, text, authentication=True), WEB)
    with undisturbed(node):
        node.password.unlink()
        node.wait_until("it is refused", lambda: "password: the Secret" in node.state()["refused"])
        assert node.state()["configHash"] == mounts.hash_of(text)
    node.kill_agent()
    node.kill_keepalived()
    node.start()
    node.runs(mounts.hash_of(text))
    assert WEB in node.instances()
    node.wait_until("it is refused", lambda: "password: the Secret" in node.state()["refused"])
    node.password.write_text(mounts.PASSWORD)
    node.wait_until("it is well", lambda: node.state()["refused"] == "")


def test_an_unreadable_mount_stops_nothing(pod: MakePod) -> None:
    """A folder without permissions, a dangling link, no mount: each is refused, and the mount is read again later."""
    node = start_only_pod(pod, TWO)
    with undisturbed(node):
        data = (node.config.path / "..data").resolve()
        for file in data.iterdir():
            file.chmod(0)
        data.chmod(0)
        node.wait_until("it is refused", lambda: "Permission denied" in node.state()["refused"])
        data.chmod(0o755)
        for file in data.iterdir():
            file.chmod(0o644)
        node.wait_until("it is well", lambda: node.state()["refused"] == "")
        data.rename(data.with_name("elsewhere"))
        node.wait_until("it is refused", lambda: "not mounted" in node.state()["refused"])
        node.config.path.rename(node.config.path.with_name("old"))
        node.wait_until("it is refused still", lambda: "not mounted" in node.state()["refused"])
        node.lives()
    node.runs(node.config.write(ONE))
    assert node.state()["refused"] == ""


_CLOCK = """
import runpy, sys, time
true, offset = time.time, sys.argv.pop(1)
def shifted_time():
    with open(offset) as file:
        return true() + float(file.read() or 0)
time.time = shifted_time
runpy.run_module("kavip", run_name="__main__", alter_sys=True)
"""


def test_a_clock_that_jumps_moves_nothing(pod: MakePod, tmp_path: Path) -> None:
    """One year ahead and thirty years back: changes are applied as usual, and no VIP moves."""
    offset, year = tmp_path / "offset", 366 * 86400
    offset.write_text("0")
    node = pod("n1")
    node.agent_program = (sys.executable, "-c", _CLOCK, str(offset))
    master(started(node, ONE), WEB)
    before = node.transitions()[WEB]
    for number, seconds in enumerate((year, -30 * year, 0)):
        offset.write_text(str(seconds))
        node.runs(node.config.write(TWO.replace("router_id edge", f"router_id edge-{number}")))
        node.lives()
        assert node.page(names.READY_PATH)[0] == 200
        assert node.state()["note"] == ""
    assert node.transitions()[WEB] == before


def test_an_untested_keepalived_is_noted(pod: MakePod, tmp_path: Path) -> None:
    """It works, and the state reports its version."""
    program = tmp_path / "older"
    program.write_text(
        '#!/bin/sh\nfor each; do [ "$each" = --version ] && { echo "Keepalived v2.0.20" >&2; exit; }; done\n'
        'exec /usr/sbin/keepalived "$@"\n'
    )
    program.chmod(0o755)
    node = master(started(pod("n1", keepalived=str(program)), ONE), WEB)
    assert node.state()["note"] == "keepalived is 2.0.20: kavip is tested with 2.2.7 to 2.3"
    assert node.state()["keepalived"]["version"] == "2.0.20"
    assert node.page(names.READY_PATH)[0] == 200


def test_a_full_disk_keeps_what_runs(pod: MakePod) -> None:
    """keepalived still answers; a change is refused until there is space."""
    node = pod("n1")
    mounted = ("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(node.run_dir))
    node.host.exec(*mounted)
    try:
        master(started(node, ONE), WEB, f"{WEB}/v6")
        held = node.addresses()
        filler = f"{node.run_dir}/filler"
        node.host.exec("dd", "if=/dev/zero", f"of={filler}", "bs=1k", check=False)
        node.config.write(TWO)
        node.wait_until("it is refused", lambda: "No space left on device" in node.state()["refused"])
        node.lives()
        assert node.page(names.READY_PATH)[0] == 200
        assert node.state()["configHash"] == mounts.hash_of(ONE)
        assert node.addresses() == held
        node.host.exec("rm", filler)
        node.runs(node.config.write(TWO.replace("router_id edge", "router_id other")))
        master(node, WEB, "shop/cart")
        assert node.transitions()[WEB] == (1, 0)
    finally:
        node.stop()
        node.host.exec("umount", "--lazy", str(node.run_dir))


def test_a_zombie_is_no_daemon(pod: MakePod) -> None:
    """Its VIPs are removed, and the next keepalived starts although the pid is still in use."""
    node = pod("n1")
    config_hash = node.config.write(ONE)
    node.prepare()
    node.frame = ("sh", "-c", '"$@" & exec sleep 600', "sh")
    parent = node.start_keepalived()
    node.frame = ()
    node.start_agent()
    node.runs(config_hash)
    master(node, WEB)
    kill_together(process.children([parent.pid]) - {parent.pid})
    node.wait_until("its VIP is gone", lambda: WEB_VIP not in node.addresses())
    node.wait_until("it is not alive", lambda: node.get(names.LIVE_PATH)[0] == 503)
    node.start_keepalived()
    master(node, WEB)
    process.kill([parent])
