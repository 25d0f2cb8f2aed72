"""A group's manifest applied again by every tool: kavip's defaults stay, and nothing changes."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.place import run
from hack.testbed.programs import Programs
from tests.app.conftest import Installation, a_group, wait_for

pytestmark = pytest.mark.apiserver

DEFAULTS = {"unicastEnabled": True, "segment": "default", "vrrpVersion": 3, "advertIntervalMilliseconds": 200}
CONFLICT = "the object has been modified"
VERBS = (
    ("apply",),
    ("replace",),
    ("apply", "--server-side", "--force-conflicts"),
    ("apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller"),
    ("apply",),
    ("replace",),
)
"""In this order: each meets what the one before has left of itself in the object."""

Write = Callable[[dict[str, Any]], None]


@pytest.fixture
def kavip(installation: Installation) -> Installation:
    """A running kavip."""
    installation.start()
    return installation


def spec_of(kavip: Installation, name: str = "edge") -> tuple[int, dict[str, Any]]:
    """Generation and spec of the group *name*."""
    found = kavip.get("keepalivedgroup", name, "-n", "lb")
    return found["metadata"]["generation"], found["spec"]


def write(kavip: Installation, manifest: dict[str, Any], *verb: str) -> None:
    """Write *manifest* with kubectl; repeat a ``kubectl replace`` that conflicts with a status write of kavip."""
    error = ""

    def written() -> bool:
        nonlocal error
        done = kavip.plane.kubectl(*verb, "--filename=-", input=json.dumps(manifest), check=False)
        error = done.stderr
        assert done.returncode == 0 or CONFLICT in error, (verb, error)
        return done.returncode == 0

    wait_for(f"kubectl {' '.join(verb)} is not overtaken", written, details=lambda: error)


@pytest.mark.parametrize("first", [("create",), ("apply",), ("apply", "--server-side")], ids=" ".join)
def test_the_same_manifest_changes_nothing(kavip: Installation, first: tuple[str, ...]) -> None:
    """For each way of creating a group, each way of writing it again keeps generation and spec."""
    manifest = a_group("edge", nodeSelector={"role": "edge"})
    write(kavip, manifest, *first)
    generation, spec = spec_of(kavip)
    assert spec.items() >= DEFAULTS.items()
    for verb in VERBS:
        write(kavip, manifest, *verb)
        assert spec_of(kavip) == (generation, spec), verb


def test_the_other_value_leaves_a_default_for_good(kavip: Installation) -> None:
    """A user's value replaces the default, and the first manifest, which omits it, does not bring the default back."""
    manifest = a_group("edge")
    other: dict[str, Any] = {
        "unicastEnabled": False,
        "segment": "rack-7",
        "vrrpVersion": 2,
        "advertIntervalMilliseconds": 1000,
    }
    write(kavip, manifest, "apply")
    write(kavip, a_group("edge", **other), "apply")
    generation, spec = spec_of(kavip)
    assert generation == 2
    assert spec.items() >= other.items()
    for verb in VERBS:
        write(kavip, manifest, *verb)
        assert spec_of(kavip) == (generation, spec), verb


@pytest.mark.parametrize("verb", sorted(set(VERBS)), ids=" ".join)
def test_a_version_goes_with_its_interval(kavip: Installation, verb: tuple[str, ...]) -> None:
    """With version 2 the interval of version 3, 200 ms, is removed, for each way of writing."""
    write(kavip, a_group("edge"), "apply")
    write(kavip, a_group("edge", vrrpVersion=2), *verb)
    _, spec = spec_of(kavip)
    assert spec["vrrpVersion"] == 2
    assert "advertIntervalMilliseconds" not in spec


def test_a_group_from_before_kavip_stays_as_it_is(installation: Installation) -> None:
    """A group that was created without kavip is not changed by writing it again."""
    manifest = a_group("edge", passwordAuth={"secretRef": {"name": "vrrp"}}, blacklistRouterIDs=[7])
    write(installation, manifest, "apply")
    generation, spec = spec_of(installation)
    assert not spec.keys() & DEFAULTS.keys()
    installation.start()
    for verb in VERBS:
        write(installation, manifest, *verb)
        assert spec_of(installation) == (generation, spec), verb


@pytest.fixture
def helm(kavip: Installation, programs: Programs, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Run helm with a chart whose only object is a group with the values as spec."""
    chart = tmp_path / "groups"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: groups\nversion: 1.0.0\n")
    manifest = json.dumps({**a_group("edge"), "spec": "SPEC"})
    (chart / "templates" / "group.yaml").write_text(manifest.replace('"SPEC"', "{{ .Values.spec | toJson }}"))
    own = {f"HELM_{name}_HOME": str(tmp_path / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}

    def call(*args: str, **spec: Any) -> None:
        values = f"--set-json=spec={json.dumps({'interface': 'eth0', **spec})}"
        command = [programs["helm"], *args, "groups", str(chart), "--namespace=lb", values]
        run(command, env={**own, "KUBECONFIG": str(kavip.plane.kubeconfig)})

    yield call
    run(
        [programs["helm"], "uninstall", "groups", "--namespace=lb"],
        env={**own, "KUBECONFIG": str(kavip.plane.kubeconfig)},
    )


@pytest.mark.parametrize("manner", ["--server-side=true", "--server-side=false"], ids=["helm-4", "as-helm-3"])
def test_helm_upgrade_changes_nothing(kavip: Installation, helm: Callable[..., None], manner: str) -> None:
    """An upgrade without a change keeps the group; one with a change makes only that change."""
    helm("install", manner)
    generation, spec = spec_of(kavip)
    assert spec.items() >= DEFAULTS.items()
    for _ in range(2):
        helm("upgrade", manner)
        assert spec_of(kavip) == (generation, spec)
    helm("upgrade", manner, metricsPort=9700, unicastEnabled=False)
    generation, changed = spec_of(kavip)
    assert changed == {**spec, "metricsPort": 9700, "unicastEnabled": False}
    helm("upgrade", manner, metricsPort=9700)
    assert spec_of(kavip) == (generation, changed)
