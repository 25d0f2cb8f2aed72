"""When a node switches to the next configuration, and which password it runs until then."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kavip.agent import mount
from kavip.agent.config.model import LocalizedConfig, MountedConfig, NextConfig, ParsedConfig, RefusedConfig
from kavip.agent.config.switchover import LONGEST, SwitchTimer, config_to_run, is_renewed, timestamp
from kavip.agent.mount import PasswordFiles
from kavip.api.agent import ProblemCode
from kavip.vrrp.compact import MARKER
from kavip.vrrp.packed import MOST_UNPACKED
from tests.agent import mounts

ONE, TWO = mounts.rendered({"shop/web": "192.0.2.130"}), mounts.rendered({"shop/web": "192.0.2.130"}, nodes=3)
START = 1_750_000_000.0


class Clocks:
    """A wall clock that can be set, and a monotonic clock."""

    def __init__(self) -> None:
        self.wall, self.monotonic = START, 10.0
        self.timer = SwitchTimer(lambda: self.wall, lambda: self.monotonic)

    def pass_time(self, seconds: float) -> None:
        """Advance both clocks."""
        self.wall += seconds
        self.monotonic += seconds


def following(ahead: float | None) -> NextConfig:
    """The next configuration, *ahead* seconds from now; None: not announced."""
    return NextConfig("digest", mounts.mounted(TWO, is_next=True), "" if ahead is None else timestamp(START + ahead))


def test_a_wall_clock_that_is_set_does_not_move_the_switch() -> None:
    """The node switches together with the others."""
    clocks, found = Clocks(), following(10)
    assert clocks.timer.update(found) == pytest.approx(10)
    clocks.pass_time(4)
    clocks.wall += 3600
    assert clocks.timer.update(found) == pytest.approx(6)
    clocks.wall -= 7200
    clocks.pass_time(6)
    assert clocks.timer.update(found) == 0


def test_an_instant_can_be_called_off_or_moved() -> None:
    """The last announcement counts."""
    clocks = Clocks()
    assert clocks.timer.update(following(10)) == pytest.approx(10)
    assert clocks.timer.update(following(None)) is None
    assert clocks.timer.update(following(30)) == pytest.approx(30)
    assert clocks.timer.update(None) is None


def test_a_past_instant_has_come_and_a_far_one_is_ignored() -> None:
    """A late agent catches up; an invalid announcement does nothing."""
    clocks = Clocks()
    assert clocks.timer.update(following(-3600)) == 0
    assert clocks.timer.update(following(LONGEST + 1)) is None
    assert clocks.timer.update(replace(following(1), at="tomorrow")) is None


def test_the_next_configuration_runs_from_its_instant_on() -> None:
    """A next configuration that cannot be read never runs."""
    mounted = mounts.mounted(ONE, next=following(10))
    assert mounted.next
    assert config_to_run(mounted, None, None) == config_to_run(mounted, 0.1, None) == mounted
    assert config_to_run(mounted, 0.0, None) == mounted.next.mounted
    broken = replace(
        mounted, next=NextConfig("digest", RefusedConfig(ProblemCode.MOUNT_INVALID, "no"), timestamp(START))
    )
    assert Clocks().timer.update(broken.next) is None
    assert config_to_run(broken, 0.0, None) == broken


def running(password: str, name: str = "") -> LocalizedConfig:
    """A running configuration with this password, named *name*."""
    head = f"# kavip: localised for n1; configuration 0{f'; password {name}' if name else ''}\n"
    return LocalizedConfig(f"{head}x {{\n    auth_pass {password}\n}}\n", "", ParsedConfig())


def test_the_password_that_runs_stays_until_the_instant() -> None:
    """Whatever is mounted; a node that changed it alone would be a second master."""
    mounted = mounts.mounted(ONE, authentication=True, password="new")
    assert is_renewed(mounted, running("old"))
    assert config_to_run(mounted, None, running("old")).password == "old"
    assert not is_renewed(mounted, running("new"))
    assert config_to_run(mounted, None, None).password == "new"  # a pod that has just started has no other
    switching = replace(mounted, next=NextConfig("digest", mounted, timestamp(START)))
    assert config_to_run(switching, 0.0, running("old")).password == "new"


@pytest.mark.parametrize("now", ["vrrp/two 0", "vrrp/one 1"])
def test_a_password_that_the_others_run_is_taken_at_once(now: str) -> None:
    """The node was away during the switch; with its old password it would be a second master."""
    mounted = mounts.mounted(ONE, authentication=True, password="new", password_name="vrrp/one 0")
    old = running("old", "vrrp/one 0")
    assert is_renewed(mounted, old)
    switched = replace(mounted, password_name=now)
    assert not is_renewed(switched, old)
    assert config_to_run(switched, None, old).password == "new"
    assert is_renewed(replace(switched, password="newer"), running("new", now))
    assert is_renewed(switched, running("old"))  # an earlier agent did not write the name


@pytest.mark.parametrize("password", [None, "", "no good", "n0tgoodeither"])
def test_an_invalid_password_is_not_waited_for(password: str | None) -> None:
    """It is refused at once, and the state says why."""
    mounted = mounts.mounted(ONE, authentication=True, password=password)
    assert not is_renewed(mounted, running("old"))
    assert config_to_run(mounted, None, running("old")) == mounted


@pytest.mark.parametrize(
    "name", ["../x/password", "vrrp/../../agent.json", "vrrp/.", "vrrp", "/etc/shadow", "vrrp/a/b"]
)
def test_a_password_is_read_from_its_folder_alone(tmp_path: Path, name: str) -> None:
    """The name of a key is a user's text."""
    (folder := tmp_path / "passwords" / "vrrp").mkdir(parents=True)
    (folder / "password").write_text("s3cret")
    (tmp_path / "x").mkdir()
    for path in (tmp_path / "x" / "password", tmp_path / "agent.json"):
        path.write_text("s3cret")
    passwords = PasswordFiles(tmp_path / "passwords")
    assert passwords.read("vrrp/password") == "s3cret"
    assert passwords.read(name) is None


def mounted_with(folder: Path, content: bytes) -> MountedConfig:
    """What the agent reads if *content* is the next text."""
    meta = {"configHash": mounts.hash_of(ONE), "next": {"configHash": mounts.hash_of(TWO)}, "nextHash": "digest"}
    files = {"keepalived.conf": ONE.encode(), "agent.json": json.dumps(meta).encode(), "next.conf.gz": content}
    mounts.Mount(folder).swap(files)
    found = mount.read(folder, PasswordFiles())
    assert isinstance(found, MountedConfig)
    return found


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no gzip",
        gzip.compress(ONE.encode())[:-20],
        gzip.compress(b"\xff\xfe"),
        gzip.compress(f"{MARKER}    $unicast_src_ip\n".encode()),
    ],
    ids=["empty", "no gzip", "cut", "no text", "compact, without the lines above"],
)
def test_a_next_text_that_cannot_be_read_costs_the_switch_alone(tmp_path: Path, content: bytes) -> None:
    """The current configuration is read as usual; the next one is refused, or does not match its hash."""
    found = mounted_with(tmp_path, content)
    assert found.text == ONE
    assert found.next
    if isinstance(found.next.mounted, MountedConfig):
        assert mounts.hash_of(found.next.mounted.text) != found.next.mounted.config_hash


@pytest.mark.slow
def test_a_next_text_that_decompresses_to_megabytes_is_refused(tmp_path: Path) -> None:
    """A compressed text of a few kilobytes cannot exhaust the agent's memory."""
    expected = {MOST_UNPACKED: MountedConfig, MOST_UNPACKED + 1: RefusedConfig, 64 << 20: RefusedConfig}
    for size, kind in expected.items():
        found = mounted_with(tmp_path / str(size), gzip.compress(b"#" * size))
        assert found.next
        assert isinstance(found.next.mounted, kind)
