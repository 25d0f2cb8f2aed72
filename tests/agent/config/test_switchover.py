"""When a node switches to what is next, and which password it runs until then."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kavip.agent import mount
from kavip.agent.config.localize import Mounted, Next
from kavip.agent.config.model import Configuration, Localized, Refused
from kavip.agent.config.switchover import LONGEST, Appointment, is_renewed, target, timestamp
from kavip.agent.mount import Passwords
from tests.agent import scene

ONE, TWO = scene.rendered({"shop/web": "192.0.2.130"}), scene.rendered({"shop/web": "192.0.2.130"}, nodes=3)
START = 1_750_000_000.0


class Clocks:
    """A wall clock that may be set, and a monotonic one that may not."""

    def __init__(self) -> None:
        self.wall, self.monotonic = START, 10.0
        self.appointment = Appointment(lambda: self.wall, lambda: self.monotonic)

    def pass_time(self, seconds: float) -> None:
        """Let both go on."""
        self.wall += seconds
        self.monotonic += seconds


def following(ahead: float | None) -> Next:
    """What is to come in so many seconds; None: that is not announced."""
    return Next("digest", scene.mounted(TWO, is_next=True), "" if ahead is None else timestamp(START + ahead))


def test_the_instant_comes_by_the_clock_that_first_saw_it() -> None:
    """The wall clock is set, forth and back: the node keeps its appointment with the others."""
    clocks, found = Clocks(), following(10)
    assert clocks.appointment.left(found) == pytest.approx(10)
    clocks.pass_time(4)
    clocks.wall += 3600
    assert clocks.appointment.left(found) == pytest.approx(6)
    clocks.wall -= 7200
    clocks.pass_time(6)
    assert clocks.appointment.left(found) == 0


def test_an_instant_that_is_called_off_or_moved() -> None:
    """What counts is what was announced last."""
    clocks = Clocks()
    assert clocks.appointment.left(following(10)) == pytest.approx(10)
    assert clocks.appointment.left(following(None)) is None
    assert clocks.appointment.left(following(30)) == pytest.approx(30)
    assert clocks.appointment.left(None) is None


def test_an_instant_in_the_past_has_come_and_one_far_away_is_not_believed() -> None:
    """An agent that starts late catches up; one that reads nonsense does nothing."""
    clocks = Clocks()
    assert clocks.appointment.left(following(-3600)) == 0
    assert clocks.appointment.left(following(LONGEST + 1)) is None
    assert clocks.appointment.left(replace(following(1), at="tomorrow")) is None


def test_what_runs_before_and_after() -> None:
    """The next text counts from the instant on, and one that cannot be read never does."""
    mounted = scene.mounted(ONE, next=following(10))
    assert mounted.next
    assert target(mounted, None, None) == target(mounted, 0.1, None) == mounted
    assert target(mounted, 0.0, None) == mounted.next.mounted
    broken = replace(mounted, next=Next("digest", Refused("no"), timestamp(START)))
    assert Clocks().appointment.left(broken.next) is None
    assert target(broken, 0.0, None) == broken


def running(password: str, name: str = "") -> Localized:
    """A configuration that runs with this password, of that name."""
    head = f"# kavip: localised for n1; configuration 0{f'; password {name}' if name else ''}\n"
    return Localized(f"{head}x {{\n    auth_pass {password}\n}}\n", "", Configuration())


def test_the_password_that_runs_stays_until_the_instant() -> None:
    """Whatever is mounted: a node that changed it alone would be a second master."""
    mounted = scene.mounted(ONE, authentication=True, password="new")
    assert is_renewed(mounted, running("old"))
    assert target(mounted, None, running("old")).password == "old"
    assert not is_renewed(mounted, running("new"))
    assert target(mounted, None, None).password == "new"  # a pod that has just started knows no other
    switching = replace(mounted, next=Next("digest", mounted, timestamp(START)))
    assert target(switching, 0.0, running("old")).password == "new"


@pytest.mark.parametrize("now", ["vrrp/two 0", "vrrp/one 1"])
def test_a_password_to_which_others_have_switched(now: str) -> None:
    """A node that was away meanwhile takes it at once; with the one that it ran it would be a second master."""
    mounted = scene.mounted(ONE, authentication=True, password="new", password_name="vrrp/one 0")
    old = running("old", "vrrp/one 0")
    assert is_renewed(mounted, old)
    switched = replace(mounted, password_name=now)
    assert not is_renewed(switched, old)
    assert target(switched, None, old).password == "new"
    assert is_renewed(replace(switched, password="newer"), running("new", now))
    assert is_renewed(switched, running("old"))  # an earlier agent did not say which


@pytest.mark.parametrize("password", [None, "", "no good", "n0tgoodeither"])
def test_a_password_that_is_none_is_refused_as_ever(password: str | None) -> None:
    """It is not waited for: the state says what is wrong with it."""
    mounted = scene.mounted(ONE, authentication=True, password=password)
    assert not is_renewed(mounted, running("old"))
    assert target(mounted, None, running("old")) == mounted


@pytest.mark.parametrize(
    "name", ["../x/password", "vrrp/../../agent.json", "vrrp/.", "vrrp", "/etc/shadow", "vrrp/a/b"]
)
def test_a_password_is_read_from_its_folder_alone(tmp_path: Path, name: str) -> None:
    """The name of a key is what a user wrote."""
    (folder := tmp_path / "passwords" / "vrrp").mkdir(parents=True)
    (folder / "password").write_text("s3cret")
    (tmp_path / "x").mkdir()
    for path in (tmp_path / "x" / "password", tmp_path / "agent.json"):
        path.write_text("s3cret")
    passwords = Passwords(tmp_path / "passwords")
    assert passwords.read("vrrp/password") == "s3cret"
    assert passwords.read(name) is None


def mounted_with(folder: Path, content: bytes) -> Mounted:
    """What an agent reads where *content* is what comes next."""
    meta = {"configHash": scene.hash_of(ONE), "next": {"configHash": scene.hash_of(TWO)}, "nextHash": "digest"}
    files = {"keepalived.conf": ONE.encode(), "agent.json": json.dumps(meta).encode(), "next.conf.gz": content}
    scene.Mount(folder).swap(files)
    found = mount.read(folder, Passwords())
    assert isinstance(found, Mounted)
    return found


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(ONE.encode())[:-20], gzip.compress(b"\xff\xfe")],
    ids=["empty", "no gzip", "cut", "no text"],
)
def test_a_next_text_that_cannot_be_read_costs_the_switch_alone(tmp_path: Path, content: bytes) -> None:
    """What runs is read as ever, and what is next is refused, or is not what its hash says."""
    found = mounted_with(tmp_path, content)
    assert found.text == ONE
    assert found.next
    if isinstance(found.next.mounted, Mounted):
        assert scene.hash_of(found.next.mounted.text) != found.next.mounted.config_hash


@pytest.mark.slow
def test_a_next_text_is_unpacked_as_far_as_a_config_map_reaches(tmp_path: Path) -> None:
    """A megabyte of nothing packs into a kilobyte: the agent's memory is not for whoever writes that."""
    found = mounted_with(tmp_path, gzip.compress(b"#" * (64 << 20)))
    assert found.next
    assert isinstance(found.next.mounted, Mounted)
    assert len(found.next.mounted.text) == 1 << 20
