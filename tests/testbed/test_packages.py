"""The lock of Debian packages: what an image holds is read from the image, and a difference is printed and refused."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from hack.testbed import foreign, images, packages
from hack.testbed.__main__ import main
from hack.testbed.errors import TestbedError

LOCK = packages.lock_of(foreign.native())
HELD = ("apt 2.6.1 amd64", "keepalived 1:2.2.7-1+b2 amd64", "netbase 6.4 all")


def tar_of(**files: bytes) -> bytes:
    """A tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An image of three layers; the second one replaces the list of the first one."""
    old, new = b"apt 1 amd64\n", "".join(f"{each}\n" for each in HELD).encode()
    layers = {
        "a.tar": tar_of(**{packages.LIST: old}),
        "b.tar": tar_of(**{f"./{packages.LIST}": new}),
        "c.tar": tar_of(other=b""),
    }
    path = tmp_path / "image.tar"
    path.write_bytes(tar_of(**layers, **{"manifest.json": json.dumps([{"Layers": [*layers]}]).encode()}))
    return path


@pytest.fixture
def checkout(tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose Dockerfile gives the image; it is the working directory."""
    monkeypatch.setattr(images, "image", lambda *_, **__: archive)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Dockerfile").touch()
    (tmp_path / LOCK).parent.mkdir()
    return tmp_path


def make(*flags: str) -> tuple[int, str, BaseException | None]:
    """Exit status, standard error and exception of `image`."""
    done = CliRunner().invoke(main, ["image", "--tag", "x", *flags])
    return done.exit_code, done.stderr, done.exception


def test_the_last_layer_with_a_list_counts(archive: Path) -> None:
    """A layer replaces the files of the layers below it."""
    assert packages.listed(archive) == [*HELD]


def test_an_image_without_a_list_is_refused(tmp_path: Path) -> None:
    """An image that does not list its packages is not taken for one without packages."""
    path = tmp_path / "image.tar"
    path.write_bytes(tar_of(**{"a.tar": tar_of(), "manifest.json": b'[{"Layers": ["a.tar"]}]'}))
    with pytest.raises(TestbedError, match=r"has no /usr/share/kavip/packages\.txt"):
        packages.listed(path)


@pytest.mark.parametrize(
    ("held", "differences"),
    [
        (HELD, ()),
        (HELD[1:], ("+ apt 2.6.1 amd64",)),
        ((*HELD, "zlib1g 1 amd64"), ("- zlib1g 1 amd64",)),
        (("apt 2.6.0 amd64", *HELD[1:]), ("- apt 2.6.0 amd64", "+ apt 2.6.1 amd64")),
        (("apt 2.6.1 arm64", *HELD[1:]), ("+ apt 2.6.1 amd64", "- apt 2.6.1 arm64")),
    ],
)
def test_each_difference_is_printed_and_refused(
    checkout: Path, held: tuple[str, ...], differences: tuple[str, ...]
) -> None:
    """A package that comes, goes or changes is a line; `--locked` prints the same and refuses the image."""
    (checkout / LOCK).write_text("# a comment\n" + "\n".join(held))
    lines = "".join(f"{LOCK}: {each}\n" for each in differences)
    assert make() == (0, lines, None)
    status, printed, error = make("--locked")
    assert printed == lines
    assert (status, isinstance(error, TestbedError)) == ((1, True) if differences else (0, False))


def test_without_a_lock_nothing_is_locked(checkout: Path) -> None:
    """`--locked` needs a lock."""
    assert make() == (0, "", None)
    assert isinstance(make("--locked")[2], TestbedError)


def test_what_is_locked_does_not_differ(checkout: Path, archive: Path) -> None:
    """`packages` writes the same file each time, prints what changed, and `image --locked` accepts it."""
    printed = CliRunner().invoke(main, ["packages", "--tag", "x"]).stderr
    assert printed.splitlines() == [f"+ {each}" for each in HELD]
    written = (checkout / LOCK).read_text()
    assert CliRunner().invoke(main, ["packages", "--tag", "x"]).stderr == ""
    assert (checkout / LOCK).read_text() == written
    assert make("--locked") == (0, "", None)
