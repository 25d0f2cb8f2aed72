"""The mount that is read, and the run directory that is written."""

import json
import os
import stat
from pathlib import Path

import pytest

from kavip.agent import mount
from kavip.agent.config.localize import Mounted, empty
from kavip.agent.config.model import Refused
from kavip.agent.keepalived.rundir import RunDirectory, replace_file
from tests.agent import scene
from tests.agent.config.test_localize import vip
from tests.agent.scene import Mount
from tests.predecessor.live import conf, instance

TEXT = scene.rendered({"shop/web": "192.0.2.130"})


def read(path: Path, password: Path | None = None) -> Mounted:
    """What is mounted; fails where it cannot be read."""
    found = mount.read(path, mount.Passwords(file=password))
    assert isinstance(found, Mounted), found
    return found


def test_a_mount_is_read_as_one(tmp_path: Path) -> None:
    """Text and metadata come from one folder, before and after kubelet's swap."""
    place = scene.Mount(tmp_path)
    place.write(TEXT, interfaceFromIP="192.0.2.1")
    found = read(tmp_path)
    assert (found.text, found.group, found.interface_from_ip) == (TEXT, "lb/edge", "192.0.2.1")
    place.write(TEXT + "\n")
    assert read(tmp_path).config_hash == scene.hash_of(TEXT + "\n")


def test_a_plain_folder_is_read_too(tmp_path: Path) -> None:
    """Outside a cluster nobody makes links."""
    (tmp_path / "keepalived.conf").write_text(TEXT)
    (tmp_path / "agent.json").write_text(json.dumps({"configHash": scene.hash_of(TEXT)}))
    assert read(tmp_path).text == TEXT


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "lacks a key"),
        ({"keepalived.conf": b"x"}, "lacks a key"),
        ({"keepalived.conf": b"x", "agent.json": b"{"}, "agent.json"),
        ({"keepalived.conf": b"x", "agent.json": b"[]"}, "agent.json"),
        ({"keepalived.conf": b"x", "agent.json": b"{}"}, "agent.json"),
        ({"keepalived.conf": b"\xff", "agent.json": b'{"configHash":""}'}, "UTF-8"),
    ],
)
def test_an_unreadable_mount_is_refused(tmp_path: Path, files: dict[str, bytes], why: str) -> None:
    """One line says what is missing; no path and no content is in it."""
    scene.Mount(tmp_path).swap(files)
    found = mount.read(tmp_path, mount.Passwords())
    assert isinstance(found, Refused)
    assert why in found.reason
    assert str(tmp_path) not in found.reason


def test_a_mount_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """It may come later."""
    assert isinstance(mount.read(tmp_path / "nowhere", mount.Passwords()), Refused)


def test_the_password_is_read_only_where_it_is_wanted(tmp_path: Path) -> None:
    """A group without passwordAuth has none, whatever is mounted."""
    secret = tmp_path / "password"
    secret.write_text(scene.PASSWORD)
    place = scene.Mount(tmp_path / "config")
    place.write(TEXT)
    assert read(place.path, secret).password is None
    place.write(TEXT, authentication=True)
    assert read(place.path, secret).password == scene.PASSWORD
    assert read(place.path, tmp_path / "absent").password is None
    secret.write_bytes(b"\xff" * 100)
    assert len(read(place.path, secret).password or "") == 64


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    """A reader that has the old file open keeps it; keepalived reads only files without an x bit."""
    path = tmp_path / "file"
    old = os.umask(0o077)
    try:
        replace_file(path, b"old")
        with path.open() as reader:
            replace_file(path, b"new")
            assert reader.read() == "old"
    finally:
        os.umask(old)
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["file"]


def test_a_replacement_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Neither the temporary file nor half of the new one."""
    target = tmp_path / "folder"
    target.mkdir()
    (target / "inside").touch()
    with pytest.raises(OSError):
        replace_file(target, b"new")
    assert os.listdir(tmp_path) == ["folder"]


def test_the_run_directory_recalls_what_was_installed(tmp_path: Path) -> None:
    """An agent that starts again finds the installed and the good configuration, or none."""
    files = RunDirectory(tmp_path)
    assert files.load() is None and files.load_good() is None
    files.install(empty("n1", config_hash="abc"))
    files.keep_good(empty("n1", config_hash="def"))
    assert files.load() == empty("n1", config_hash="abc")
    assert files.load_good() == empty("n1", config_hash="def")
    (tmp_path / "keepalived.conf").write_text("! somebody else's\n")
    assert files.load() is None


def test_the_record_keeps_vips(tmp_path: Path) -> None:
    """A damaged record holds none: then only what looks added is taken away."""
    files = RunDirectory(tmp_path)
    assert files.load_record() == frozenset()
    files.save_record({vip("192.0.2.130"), vip("2001:db8::1/64", "eth1")})
    assert files.load_record() == {vip("192.0.2.130"), vip("2001:db8::1/64", "eth1")}
    (tmp_path / "vips.json").write_text('[{"address": "x"')
    assert files.load_record() == frozenset()


@pytest.mark.parametrize(("theirs", "refused"), [("s3cret", False), ("s3cret01-and-more", False), ("xyzzy12", True)])
def test_beside_keepalived_operator(tmp_path: Path, theirs: str, refused: bool) -> None:
    """Its key is its pods', kavip's text has its own; a password that is not theirs would make two masters."""
    old = conf(instance("shop/web", 7, "192.0.2.140", password=theirs))
    meta = {"configHash": "0123", "authentication": True}
    mounted = {"kavip.conf": b"ours", "keepalived.conf": old.encode(), "agent.json": json.dumps(meta).encode()}
    Mount(tmp_path / "config").swap(mounted)
    (tmp_path / "password").write_text(theirs[:8] if not refused else "s3cret")
    found = mount.read(tmp_path / "config", mount.Passwords(file=tmp_path / "password"))
    assert isinstance(found, Refused) == refused
    if isinstance(found, Refused):
        assert "another one than keepalived-operator's pods run" in found.reason
        assert theirs not in found.reason
    else:
        assert found.text == "ours"
