"""The chart values ``pools`` and ``groups`` on a real API server, with the rights and the policies of the chart."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from hack.testbed import process, runs
from hack.testbed.place import Result, run
from hack.testbed.process import wait_for
from hack.testbed.programs import Programs
from kavip import names
from tests.app import deployment as deployments
from tests.app.deployment import Deployment, Replica
from tests.support import manifests

pytestmark = [pytest.mark.apiserver, pytest.mark.netns, pytest.mark.chart, pytest.mark.timeout(900)]

POOL = "pools[0].name=lan,pools[0].spec.addresses={192.0.2.128/28}"
FORCE = "--force-conflicts"  # this deployment has edited the timeouts of its webhooks
GROUP = "groups[0].name=edge,groups[0].namespace=lb,groups[0].default=true,groups[0].spec.interface=eth0"


@pytest.fixture
def deployment(programs: Programs) -> Iterator[Deployment]:
    """A deployment in its own network namespace."""
    with runs.temporary() as state, deployments.running(programs, state) as found:
        yield found
        for log in sorted(state.glob("kavip-*.log")):
            print(f"--- {log.name}", process.tail(log, 60), sep="\n")  # noqa: T201 - shown when the test fails


def test_one_command_makes_vips(deployment: Deployment) -> None:
    """
    Pool and group come with the release; a plain Service gets an address. The namespace of the group comes later.

    The webhooks are Fail, and the first attempts come before they answer.
    """
    deployment.install(POOL, GROUP)
    deployment.start()
    wait_for("the pool is there", lambda: is_applied(deployment, "VIPPool lan"), timeout=150)
    group = wait_condition(deployment, "KeepalivedGroup lb/edge", "NamespaceNotFound")
    assert group["message"] == "groups[0].namespace: 'lb' does not exist; run kubectl create namespace lb"
    deployment.plane.kubectl("create", "namespace", "lb")
    wait_for("the group is there", lambda: is_applied(deployment, "KeepalivedGroup lb/edge"), timeout=150)
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "allocateLoadBalancerNodePorts": False}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
    deployment.plane.kubectl("create", "--filename=-", input=json.dumps(service))
    path = "--output=jsonpath={.status.loadBalancer.ingress[0].ip}"
    wait_for(
        "it has an address",
        lambda: deployment.plane.kubectl("get", "service", "web", path).stdout == "192.0.2.128",
        timeout=150,
    )
    shown = ("describe", "configmap", names.VALUES_CONFIGMAP_NAME, deployments.OWN)
    for words in ("NamespaceNotFound", "VIPPool lan: applied"):
        wait_for(f"an Event says {words}", partial(says, deployment, words, shown), timeout=150)
    assert refusals(deployment) == [], "neither RBAC nor a policy refuses what kavip does"


def test_values_win_on_an_upgrade(deployment: Deployment) -> None:
    """
    Between upgrades an edit of a user stays, also over a restart; an upgrade and a rollback set the values again.

    Fields that the values do not set stay as the user has them, and a name that leaves the values is not deleted.
    """
    second = "pools[1].name=lab,pools[1].spec.addresses={198.51.100.0/28}"
    deployment.install(POOL, second)
    replica = deployment.start()
    for pool in ("lan", "lab"):  # retried while the API server does not know the webhook's new CA yet
        wait_for(f"the pool {pool} is there", partial(is_applied, deployment, f"VIPPool {pool}"), timeout=150)
    edit = {"spec": {"addresses": ["192.0.2.160/28"], "priority": 7}}
    edit_pool(deployment, edit)
    process.kill([replica.process])
    deployment.kill(replica)
    replica = deployment.start()
    ready(replica)
    assert spec_of(deployment, "lan").items() >= edit["spec"].items()

    helm(deployment, "upgrade", POOL.replace("128/28", "192/28"))
    wait_for("the new value is there", lambda: addresses(deployment) == ["192.0.2.192/28"], timeout=150)
    assert spec_of(deployment, "lan")["priority"] == 7
    wait_for(
        "the conditions are of these values",
        lambda: [each["name"] for each in conditions(deployment)] == ["lan"],
        timeout=150,
    )
    assert spec_of(deployment, "lab")["addresses"] == ["198.51.100.0/28"]

    edit_pool(deployment, {"spec": {"addresses": ["192.0.2.160/28"]}})
    run_helm(deployment, "rollback", "kavip", "1", deployments.OWN, FORCE)
    wait_for("the old value is there", lambda: addresses(deployment) == ["192.0.2.128/28"], timeout=150)
    edit_pool(deployment, {"spec": {"addresses": ["192.0.2.160/28"]}})
    helm(deployment, "upgrade", POOL, second)
    wait_for("an upgrade to the same values", lambda: addresses(deployment) == ["192.0.2.128/28"], timeout=150)
    wait_for("lab is applied again", lambda: is_applied(deployment, "VIPPool lab"), timeout=150)


def test_what_is_refused_is_named(deployment: Deployment) -> None:
    """What admission or RBAC refuses, an unknown field and a malformed entry have conditions with the path."""
    deployment.install(POOL, "pools[1].name=twin,pools[1].spec.addresses={192.0.2.128/30}")
    replica = deployment.start()
    ready(replica)
    wait_for("the good pool is there", lambda: is_applied(deployment, "VIPPool lan"), timeout=150)
    twin = wait_condition(deployment, "VIPPool twin", "Refused")
    assert twin["message"].startswith("pools[1]: ")
    assert "lan" in twin["message"]
    text = json.dumps(
        {
            "revision": "by hand",
            "pools": [
                {"name": "lan", "spec": {"addresses": ["192.0.2.128/28"], "adresses": []}},
                {"name": "lan", "spec": {}},
                {"nme": "lan"},
                {"name": "other", "spec": {"addresses": ["203.0.113.0/28"]}},
            ],
            "groups": [{"name": "edge", "spec": {"interface": "eth0"}}],
        }
    )
    patch = json.dumps({"data": {names.VALUES_KEY: text}})
    deployment.plane.kubectl(
        "patch", "configmap", names.VALUES_CONFIGMAP_NAME, deployments.OWN, "--type=merge", f"--patch={patch}"
    )
    unknown = wait_condition(deployment, "VIPPool lan", "Invalid")["message"]
    assert unknown == "pools[0].spec.adresses: unknown field; did you mean addresses?"
    messages = {each["name"]: each["message"] for each in conditions(deployment)}
    assert messages["pools[1]"] == "pools[1].name: 'lan' is pools[0] already"
    assert messages["pools[2]"].startswith("pools[2].nme: unknown field; want name, namespace, labels")
    assert messages["groups[0]"] == "groups[0].namespace: '': want the namespace of the group"
    other = wait_condition(deployment, "VIPPool other", "Refused")["message"]
    assert "is forbidden" in other, "RBAC permits only the names of the chart's values"


def says(deployment: Deployment, words: str, command: Sequence[str]) -> bool:
    """Whether kubectl prints *words*."""
    return words in deployment.plane.kubectl(*command).stdout


def ready(replica: Replica) -> None:
    """Wait until *replica* is ready."""
    wait_for("the replica is ready", lambda: not replica.unready(), timeout=150)


def conditions(deployment: Deployment) -> list[dict[str, Any]]:
    """The conditions of all entries."""
    found = deployment.plane.kubectl("get", "configmap", names.VALUES_CONFIGMAP_NAME, deployments.OWN, "-o", "json")
    annotations = json.loads(found.stdout)["metadata"].get("annotations", {})
    return list(json.loads(annotations.get(names.VALUES_CONDITIONS_ANNOTATION, "[]")))


def condition(deployment: Deployment, entry: str) -> dict[str, Any]:
    """The condition of one entry, by kind and key."""
    for each in conditions(deployment):
        key = "/".join(filter(None, (each["namespace"], each["name"])))
        if f"{each['kind']} {key}" == entry:
            return each
    return {}


def is_applied(deployment: Deployment, entry: str) -> bool:
    """Whether the condition of *entry* is True, and the object exists."""
    kind, _, key = entry.partition(" ")
    namespace, _, name = key.rpartition("/")
    where = [f"--namespace={namespace}"] if namespace else []
    exists = not deployment.plane.kubectl("get", kind.lower(), name, *where, check=False).returncode
    return exists and condition(deployment, entry).get("status") == "True"


def wait_condition(deployment: Deployment, entry: str, reason: str) -> dict[str, Any]:
    """The condition of *entry*, once it has that *reason*."""
    wait_for(
        f"{entry} has {reason}", lambda: condition(deployment, entry).get("reason") == reason, timeout=150, interval=0.2
    )
    return condition(deployment, entry)


def spec_of(deployment: Deployment, pool: str) -> dict[str, Any]:
    """The spec of a pool."""
    found: dict[str, Any] = json.loads(deployment.plane.kubectl("get", "vippool", pool, "-o", "json").stdout)["spec"]
    return found


def addresses(deployment: Deployment) -> list[str]:
    """The addresses of the pool lan."""
    return list(spec_of(deployment, "lan")["addresses"])


def edit_pool(deployment: Deployment, patch: dict[str, Any]) -> None:
    """Edit the pool lan as a user does."""
    deployment.plane.kubectl("patch", "vippool", "lan", "--type=merge", f"--patch={json.dumps(patch)}")


def helm(deployment: Deployment, command: str, *settings: str) -> None:
    """Run helm with the chart and *settings*."""
    values = [f"--set={each}" for each in (*settings, deployments.COMBINED.partition("=")[2])]
    strict = "--set=webhook.failurePolicy.mutating=Fail"
    run_helm(deployment, command, "kavip", str(manifests.CHART), deployments.OWN, FORCE, strict, *values)


def run_helm(deployment: Deployment, *args: str) -> Result:
    """Run helm beside the API server."""
    command = deployment.machine.command(deployment.programs["helm"], *args)
    return run(command, env={"KUBECONFIG": str(deployment.plane.kubeconfig), "HOME": str(deployment.state)})


def refusals(deployment: Deployment) -> list[str]:
    """The requests of kavip that RBAC or a policy refused."""
    return [f"{event.verb} {event.uri}" for event in deployment.requests() if event.code in (401, 403)]
