"""Manifests on disk: a Service is in one place only, and a file has its old content or its new one."""

import os
import stat
from pathlib import Path

import pytest

from kavip.cli.sources.rewrite import read_manifests
from kavip.errors import BadFile

SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {externalIPs: [%s]}\n"


def test_a_service_in_two_files_is_refused(tmp_path: Path) -> None:
    """They are of two clusters, with addresses of their own."""
    (tmp_path / "a.yaml").write_text(SERVICE % "192.0.2.10")
    (tmp_path / "b.yaml").write_text(SERVICE % "192.0.2.20")
    with pytest.raises(BadFile) as error:
        read_manifests([tmp_path])
    place = f"{tmp_path / 'b.yaml'}, document 1, line 1: Service shop/web is already in {tmp_path / 'a.yaml'}:1; "
    assert str(error.value) == f"{place}give the files of one cluster at a time"
    assert len(read_manifests([tmp_path / "a.yaml", tmp_path / "a.yaml"])[0]) == 1


def test_a_written_file_keeps_its_mode_its_mark_and_the_link_to_it(tmp_path: Path) -> None:
    """The new content takes the place of the old one, and nothing else is left in the folder."""
    (tmp_path / "real").mkdir()
    file, link = tmp_path / "real" / "web.yaml", tmp_path / "web.yaml"
    file.write_text("\ufeff" + SERVICE % "192.0.2.10")
    file.chmod(0o640)
    link.symlink_to(file)
    ((manifest,), _) = read_manifests([link])
    manifest.write(SERVICE % "192.0.2.20")
    assert file.read_text() == "\ufeff" + SERVICE % "192.0.2.20"
    assert (stat.S_IMODE(file.stat().st_mode), link.is_symlink()) == (0o640, True)
    assert [each.name for each in file.parent.iterdir()] == ["web.yaml"]


def test_what_cannot_be_written_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full costs nothing."""
    file = tmp_path / "web.yaml"
    file.write_text(SERVICE % "192.0.2.10")
    ((manifest,), _) = read_manifests([file])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BadFile, match="cannot be written: No space left on device"):
        manifest.write(SERVICE % "192.0.2.20")
    assert file.read_text() == SERVICE % "192.0.2.10"
    assert os.listdir(tmp_path) == ["web.yaml"]
