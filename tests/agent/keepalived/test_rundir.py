"""Reading the mount, and writing the run directory."""

import json
import os
import stat
from pathlib import Path

import pytest

from kavip.agent import mount
from kavip.agent.config.localize import empty
from kavip.agent.config.model import MountedConfig, RefusedConfig
from kavip.agent.keepalived.rundir import RunDirectory, replace_file
from tests.agent import mounts
from tests.agent.config.test_localize import vip
from tests.agent.mounts import Mount
from tests.keepalived_operator.oldobjects import conf, instance

TEXT = mounts.rendered({"shop/web": "192.0.2.130"})


def read(path: Path, password: Path | None = None) -> MountedConfig:
    """The mounted configuration; fails if it cannot be read."""
    found = mount.read(path, mount.PasswordFiles(file=password))
    assert isinstance(found, MountedConfig), found
    return found


def test_all_keys_are_read_from_one_folder(tmp_path: Path) -> None:
    """Before and after kubelet's swap."""
    place = mounts.Mount(tmp_path)
    place.write(TEXT, interfaceFromIP="192.0.2.1")
    found = read(tmp_path)
    assert (found.text, found.group, found.interface_from_ip) == (TEXT, "lb/edge", "192.0.2.1")
    place.write(TEXT + "\n")
    assert read(tmp_path).config_hash == mounts.hash_of(TEXT + "\n")


def test_a_plain_folder_is_read_too(tmp_path: Path) -> None:
    """Outside a cluster there are no symbolic links."""
    (tmp_path / "keepalived.conf").write_text(TEXT)
    (tmp_path / "agent.json").write_text(json.dumps({"configHash": mounts.hash_of(TEXT)}))
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
    """The message says what is missing, without a path or any content."""
    mounts.Mount(tmp_path).swap(files)
    found = mount.read(tmp_path, mount.PasswordFiles())
    assert isinstance(found, RefusedConfig)
    assert why in found.message
    assert str(tmp_path) not in found.message


def test_a_mount_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """It may come later."""
    assert isinstance(mount.read(tmp_path / "nowhere", mount.PasswordFiles()), RefusedConfig)


def test_the_password_is_read_only_where_it_is_wanted(tmp_path: Path) -> None:
    """A group without passwordAuth has none, whatever is mounted."""
    secret = tmp_path / "password"
    secret.write_text(mounts.PASSWORD)
    place = mounts.Mount(tmp_path / "config")
    place.write(TEXT)
    assert read(place.path, secret).password is None
    place.write(TEXT, authentication=True)
    assert read(place.path, secret).password == mounts.PASSWORD
    assert read(place.path, tmp_path / "absent").password is None
    secret.write_bytes(b"\xff" * 100)
    assert len(read(place.path, secret).password or "") == 64


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    """A reader with the old file open keeps it; the new file has no x bit, which keepalived requires."""
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
    """No temporary file and no partial content."""
    target = tmp_path / "folder"
    target.mkdir()
    (target / "inside").touch()
    with pytest.raises(OSError):
        replace_file(target, b"new")
    assert os.listdir(tmp_path) == ["folder"]


def test_the_run_directory_recalls_what_was_installed(tmp_path: Path) -> None:
    """A restarted agent finds the installed and the good configuration, or none."""
    files = RunDirectory(tmp_path)
    assert files.load() is None and files.load_good() is None
    files.install(empty("n1", config_hash="abc"))
    files.keep_good(empty("n1", config_hash="def"))
    assert files.load() == empty("n1", config_hash="abc")
    assert files.load_good() == empty("n1", config_hash="def")
    (tmp_path / "keepalived.conf").write_text("! written by another program\n")
    assert files.load() is None


def test_the_record_keeps_vips(tmp_path: Path) -> None:
    """A damaged record is empty; then only addresses that look added are removed."""
    files = RunDirectory(tmp_path)
    assert files.load_record() == frozenset()
    files.save_record({vip("192.0.2.130"), vip("2001:db8::1/64", "eth1")})
    assert files.load_record() == {vip("192.0.2.130"), vip("2001:db8::1/64", "eth1")}
    (tmp_path / "vips.json").write_text('[{"address": "x"')
    assert files.load_record() == frozenset()


@pytest.mark.parametrize(("theirs", "refused"), [("s3cret", False), ("s3cret01-and-more", False), ("xyzzy12", True)])
def test_a_take_over_needs_the_password_of_the_old_pods(tmp_path: Path, theirs: str, refused: bool) -> None:
    """kavip's text has a key of its own meanwhile; another password would make two masters."""
    old = conf(instance("shop/web", 7, "192.0.2.140", password=theirs))
    meta = {"configHash": "0123", "authentication": True}
    mounted = {"kavip.conf": b"ours", "keepalived.conf": old.encode(), "agent.json": json.dumps(meta).encode()}
    Mount(tmp_path / "config").swap(mounted)
    (tmp_path / "password").write_text(theirs[:8] if not refused else "s3cret")
    found = mount.read(tmp_path / "config", mount.PasswordFiles(file=tmp_path / "password"))
    assert isinstance(found, RefusedConfig) == refused
    if isinstance(found, RefusedConfig):
        assert "another one than keepalived-operator's pods run" in found.message
        assert theirs not in found.message
    else:
        assert found.text == "ours"
