"""``kavip plan --diff`` and ``--live`` on a real API server: no output without a change, and the changes otherwise."""

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import Installation, a_group, a_pool, a_service, object_of, wait_for
from tests.app.test_explain import kubectl_kavip, let_list

pytestmark = pytest.mark.apiserver

POOL = "kavip.io/pool"
GROUP = {"keepalived-operator.redhat-cop.io/keepalivedgroup": "lb/edge"}
NODES = ("n1", "n2")
STANDING: dict[str, dict[str, Any]] = {
    "pool": a_pool("edge", "192.0.2.128/28"),
    "group": a_group("edge", default=True, resources={"requests": {"cpu": "0.5", "memory": "64Mi"}}),
    "web": a_service("web", annotations=GROUP),
    "plain": a_service("plain"),
}
LOCAL = {"type": "ClusterIP", "externalIPs": ["192.0.2.140"], "ports": [{"port": 80}], "externalTrafficPolicy": "Local"}
STANDING["local"] = {**a_service("local", annotations=GROUP), "spec": LOCAL}
SLICE = object_of(
    "EndpointSlice",
    "local-1",
    namespace="shop",
    version="discovery.k8s.io/v1",
    labels={"kubernetes.io/service-name": "local"},
    addressType="IPv4",
    endpoints=[{"addresses": ["203.0.113.1"], "nodeName": "n1", "conditions": {"ready": True}}],
)
RIGHTS = (("", "services"), ("kavip.io", "vippools"), ("redhatcop.redhat.io", "keepalivedgroups"), ("", "nodes"))


@pytest.fixture
def running(installation: Installation) -> Iterator[Installation]:
    """Two nodes, a pool, a group with its objects, and two Services with addresses."""
    for number, name in enumerate(NODES):
        installation.apply(object_of("Node", name))
        status = {"status": {"addresses": [{"type": "InternalIP", "address": f"198.51.100.{number + 1}"}]}}
        installation.plane.kubectl("patch", "node", name, "--subresource=status", "-p", json.dumps(status))
    installation.start()
    installation.apply_and_wait(STANDING["pool"], STANDING["group"])
    for name in ("web", "plain"):
        installation.apply(STANDING[name])
        wait_for(f"{name} has its address", partial(installation.addresses, name))
    installation.apply(STANDING["local"], SLICE)
    wait_for(
        "both are in the configuration", lambda: "shop/plain" in conf(installation) and "shop/web" in conf(installation)
    )
    wait_for("the VIP of one follows its endpoint", lambda: '"nodes":["n1"]' in agent_config(installation))
    wait_for("there is a DaemonSet", lambda: installation.get("daemonset", "edge", "-n", "lb"))
    yield installation


def conf(installation: Installation) -> str:
    """The current keepalived.conf."""
    found = installation.get("configmap", "edge", "-n", "lb") or {}
    return str(found.get("data", {}).get("keepalived.conf", ""))


def agent_config(installation: Installation) -> str:
    """The current agent.json."""
    found = installation.get("configmap", "edge", "-n", "lb") or {}
    return str(found.get("data", {}).get("agent.json", ""))


def run_plan(
    tmp_path: Path, installation: Installation, *objects: dict[str, Any], command: str, user: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run ``kubectl kavip`` *command* on a file of *objects*."""
    file = tmp_path / "given.yaml"
    file.write_text("\n---\n".join(json.dumps(each) for each in objects))
    return kubectl_kavip(tmp_path, installation, "kavip", *command.split(), "-f", str(file), user=user)


def test_only_changes_are_shown(running: Installation, tmp_path: Path) -> None:
    """The same manifests give no output; a new Service, selector and pool show addresses, VRIDs and texts."""
    same = run_plan(tmp_path, running, *STANDING.values(), command="plan --diff")
    assert (same.returncode, same.stdout, same.stderr) == (0, "", "")

    running.plane.audit.mark()
    new = run_plan(tmp_path, running, a_service("api"), command="plan --diff")
    assert new.returncode == 1, new.stderr
    lines = new.stdout.splitlines()
    assert lines[0] == "KeepalivedGroup lb/edge: status.routerIDs[shop/api]: none -> 4"
    assert lines[1] == "Service shop/api: status.loadBalancer.ingress: none -> 192.0.2.130"
    assert "+++ files: ConfigMap lb/edge keepalived.conf" in lines
    assert "+vrrp_instance shop/api {" in lines
    assert not [line for line in lines if line.startswith("-") and "Hash" not in line and not line.startswith("---")]
    assert "DaemonSet" not in new.stdout

    moved = a_group("edge", default=True, nodeSelector={"role": "lb"}, resources={"requests": {"cpu": "500m"}})
    other = run_plan(tmp_path, running, moved, command="plan --diff -o json")
    diffs = {each["subject"]: each["diff"] for each in json.loads(other.stdout)["diffs"]}
    assert "+        role: lb" in diffs["DaemonSet lb/edge"].splitlines()
    assert "-            memory" in diffs["DaemonSet lb/edge"].replace("-              memory", "-            memory")
    assert "cpu" not in "".join(line for line in diffs["DaemonSet lb/edge"].splitlines() if line[0] in "+-")
    assert "-unicast" not in diffs["ConfigMap lb/edge keepalived.conf"], "what the webhook filled in stays"

    bad = run_plan(tmp_path, running, a_service("bad", annotations={POOL: "egde"}), command="plan --diff")
    assert bad.returncode == 2
    assert 'pool "egde" does not exist; did you mean "edge"?' in bad.stderr


def test_live_evaluates_against_the_cluster_with_few_rights(running: Installation, tmp_path: Path) -> None:
    """
    References are found, an address in use is reported, existing objects are updates, and unreadable kinds are noted.
    """
    typo = a_service("typo", annotations={POOL: "egde", **GROUP})
    blind = run_plan(tmp_path, running, typo, command="check")
    assert (blind.returncode, blind.stdout) == (0, "")
    assert "references to them were not checked" in blind.stderr
    seen = run_plan(tmp_path, running, typo, command="check --live")
    assert (seen.returncode, seen.stderr) == (1, "")
    assert 'pool "egde" does not exist; did you mean "edge"?' in seen.stdout
    taken = a_service("taken", annotations={"kavip.io/addresses": "192.0.2.128", **GROUP})
    assert "192.0.2.128" in run_plan(tmp_path, running, taken, command="check --live").stdout
    again = run_plan(tmp_path, running, *STANDING.values(), command="check --live")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")

    planned = run_plan(tmp_path, running, a_service("api"), command="plan --live -o json")
    (api,) = json.loads(planned.stdout)["services"]
    assert (api["name"], api["addresses"], api["pool"]) == ("api", ["192.0.2.130"], "edge")

    rights = [each for group, plural in RIGHTS[1:3] for each in let_list(running, "ci", group, plural)]
    running.plane.audit.mark()
    few = run_plan(tmp_path, running, typo, command="check --live", user="ci")
    assert (few.returncode, 'did you mean "edge"?' in few.stdout) == (1, True), few.stderr
    assert "you may not list services of the whole cluster" in few.stderr
    assert "you may not list keepalivedgroups" not in few.stderr
    assert {event.verb for event in running.plane.audit.events(user="ci")} <= {"list", "get"}
    unsure = run_plan(tmp_path, running, typo, command="plan --diff", user="ci")
    assert unsure.returncode == 2
    assert "the difference is unknown: you may not list namespaces" in unsure.stderr
    listed = {"apiVersion": "v1", "kind": "List", "items": rights}
    running.plane.kubectl("delete", "-f", "-", input=json.dumps(listed))
