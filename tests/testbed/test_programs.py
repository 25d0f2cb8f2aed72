"""Programs are built once, from pinned modules, or taken from where they are."""

from pathlib import Path

import pytest

from hack.testbed import golang, programs
from hack.testbed.errors import TestbedError


@pytest.fixture(autouse=True)
def no_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache for this test only, and a compiler that is never run."""
    monkeypatch.setenv("KAVIP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(golang, "description", lambda: "go version go1.0 test")


def test_a_second_run_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the cache is taken."""
    built = []

    def build(module: Path, package: str, name: str, flags: list[str], draft: Path) -> None:
        built.append(name)
        draft.mkdir()
        (draft / name).touch()

    monkeypatch.setattr(golang, "build", build)
    first = programs.ensure(["etcd", "helm"])
    assert programs.ensure(["etcd", "helm"]) == first
    assert built == ["etcd", "helm"]
    assert Path(first["helm"]).name == "helm"


def test_another_compiler_is_another_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key holds what the program was built with."""
    before = programs._folder(programs.SOURCES[0])
    monkeypatch.setattr(golang, "description", lambda: "go version go1.1 test")
    assert programs._folder(programs.SOURCES[0]) != before


def test_programs_of_kubebuilder_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KUBEBUILDER_ASSETS needs no build; a folder that is not there is an error that says so."""
    (tmp_path / "etcd").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert programs.ensure(["etcd"])["etcd"] == str(tmp_path / "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "absent"))
    with pytest.raises(TestbedError, match="absent is not a directory"):
        programs.ensure(["etcd"])


def test_kubernetes_programs_tell_their_version() -> None:
    """The version that go.mod pins is what the programs say of themselves."""
    flags = " ".join(programs._flags(programs.SOURCES[1]))
    assert "component-base/version.gitVersion=v1.35." in flags
    assert "component-base/version.gitMinor=35" in flags


def test_every_module_is_pinned() -> None:
    """Each program's module has a go.mod and a go.sum."""
    for source in programs.SOURCES:
        assert (golang.TOOLS / source.module / "go.mod").exists()
        assert (golang.TOOLS / source.module / "go.sum").exists()
    assert golang.minimum() >= (1, 25)
