"""Programs are built once from pinned modules, or taken from KUBEBUILDER_ASSETS."""

from pathlib import Path

import pytest

from hack.testbed import golang, programs
from hack.testbed.errors import TestbedError
from hack.testbed.progress import Step


@pytest.fixture(autouse=True)
def no_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache for this test only, and a compiler that is never run."""
    monkeypatch.setenv("KAVIP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(golang, "description", lambda: "go version go1.0 test")


def test_a_second_run_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that are in the cache are not built again."""
    built = []

    def build(module: Path, packages: list[str], flags: list[str], out: Path, *, progress: Step) -> None:
        built.append(packages)
        for package in packages:
            (out / golang.name_of(package)).touch()

    monkeypatch.setattr(golang, "build", build)
    first = programs.ensure(["etcd", "helm"])
    assert programs.ensure(["etcd", "helm"]) == first
    assert built == [["go.etcd.io/etcd/server/v3", "helm.sh/helm/v4/cmd/helm"]]
    assert (Path(first["etcd"]).name, Path(first["helm"]).name) == ("etcd", "helm")
    assert Path(first["etcd"]).exists()


def test_another_compiler_is_another_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key contains the version of the compiler."""
    before = programs._folder(programs.SOURCES[0])
    monkeypatch.setattr(golang, "description", lambda: "go version go1.1 test")
    assert programs._folder(programs.SOURCES[0]) != before


def test_programs_of_kubebuilder_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KUBEBUILDER_ASSETS needs no build; a missing folder is an error with its name."""
    (tmp_path / "etcd").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert programs.ensure(["etcd"])["etcd"] == str(tmp_path / "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "absent"))
    with pytest.raises(TestbedError, match="absent is not a directory"):
        programs.ensure(["etcd"])


def test_kubernetes_programs_tell_their_version() -> None:
    """The programs report the version that go.mod pins."""
    flags = " ".join(programs._flags("kubernetes"))
    assert "component-base/version.gitVersion=v1.35." in flags
    assert "component-base/version.gitMinor=35" in flags


def test_every_module_is_pinned() -> None:
    """Each program's module has a go.mod and a go.sum."""
    for source in programs.SOURCES:
        assert (golang.TOOLS / source.module / "go.mod").exists()
        assert (golang.TOOLS / source.module / "go.sum").exists()
    assert golang.minimum() >= (1, 25)


def test_helm_shares_the_packages_of_kubernetes() -> None:
    """Both stand in one go.mod, and helm's release was made for that minor version of Kubernetes."""
    modules = {source.name: source.module for source in programs.SOURCES}
    assert modules["helm"] == modules["kubectl"] == "kubernetes"
    minor = programs.required("kubernetes", "k8s.io/kubernetes").split(".")[1]
    assert programs.required("kubernetes", "k8s.io/client-go").split(".")[1] == minor


def test_the_demo_builds_only_what_it_shows() -> None:
    """Other load balancers, a Gateway controller, CoreDNS, agnhost, OLM, Ignition are built only for what uses them."""
    others = {"metallb", "metallb-speaker", "traefik", "coredns", "agnhost", "olm", "ignition"}
    assert {source.name for source in programs.SOURCES} - set(programs.CLUSTER) == others
    assert {"metallb-speaker", "traefik"}.isdisjoint(programs.TESTS)
