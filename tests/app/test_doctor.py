"""``kavip doctor`` on a real API server, with a real webhook, agents behind ``pods/proxy``, and the rights of users."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from hack.testbed import runs
from hack.testbed.place import Result, run
from hack.testbed.process import wait_for
from hack.testbed.programs import Programs
from kavip import names
from kavip.api.agent import AgentState, InstanceReport, KeepalivedReport, NodeProblem, ProblemCode
from kavip.api.agentconfig import decode_config
from kavip.cli.views.doctor.checks import CHECKS
from kavip.cli.views.doctor.inspection import Source
from tests.app import deployment as deployments
from tests.app.conftest import a_group, a_pool, object_of
from tests.app.deployment import Deployment

pytestmark = [pytest.mark.apiserver, pytest.mark.netns, pytest.mark.chart, pytest.mark.timeout(2400)]

RUNNING = KeepalivedReport(version="2.3.3", running=True)
NODES = {"n1": "192.0.2.21", "n2": "192.0.2.22"}
PATIENCE = 600  # seconds: each run is dozens of calls
READER = "viewer"
READABLE = (
    "services,nodes,pods,configmaps,deployments.apps,daemonsets.apps,leases.coordination.k8s.io,"
    "servicecidrs.networking.k8s.io,vippools.kavip.io,keepalivedgroups.redhatcop.redhat.io,"
    "customresourcedefinitions.apiextensions.k8s.io,mutatingwebhookconfigurations.admissionregistration.k8s.io,"
    "validatingwebhookconfigurations.admissionregistration.k8s.io"
)
BROKEN = {
    "crds": "CustomResourceDefinition vippools.kavip.io lacks spec.conflictDetection",
    "deployments": "Deployment kavip/kavip has no ready pod",
    "webhooks": "ValidatingWebhookConfiguration kavip has no webhook validate-service.kavip.io",
    "webhook-answers": "the API server accepts a Service that kavip refuses: it does not ask kavip",
    "load-balancers": "MetalLB runs (lb/speaker) and has no class of its own",
    "default-group": (
        "KeepalivedGroup lb/second is labelled as default group, and so is lb/edge, which is older and counts"
    ),
    "pools": "VIPPool edge has 192.0.2.21, the address of node n1",
    "interfaces": "node n2 has no interface vlan7, which group lb/edge uses",
    "strict-arp": "node n1: this node answers ARP for VIPs of other nodes",
    "adverts": "group lb/edge: nodes n1, n2 are masters at once of shop/web",
    "clocks": "the clock of node n1 is ... s behind that of the API server",
}
FROM_AGENTS = {each.name for each in CHECKS if Source.AGENTS in each.needs}


@pytest.fixture
def deployment(programs: Programs) -> Iterator[Deployment]:
    """A deployment in its own network namespace: the API server connects to no pod on loopback."""
    with runs.temporary() as state, deployments.running(programs, state) as found:
        yield found


def test_what_is_broken_is_found(deployment: Deployment) -> None:
    """A sound cluster has no finding; what is broken is found; a user finds what this user may read."""
    agents = prepare(deployment)
    agents.answer("n1")
    agents.answer("n2")
    awaited(agents, is_sound)

    break_things(deployment, agents)
    right = "account kavip/kavip may not create daemonsets.apps in all namespaces"
    found = whats(awaited(agents, lambda done: right in whats(done).get("rights", ()) and is_broken(done)))
    stored = deployment.plane.kubectl("get", "services", "--namespace=default", "--output=name").stdout
    assert stored.split() == ["service/kubernetes"]

    permit_reading(deployment)
    done = awaited(agents, lambda done: done.returncode == 1, user=READER)
    checks = {each["name"]: each for each in json.loads(done.stdout)["checks"]}
    unmade = {name for name, each in checks.items() if each["result"] == "NotChecked"}
    assert unmade == {*FROM_AGENTS, "rights", "webhook-answers"}
    assert re.search('403 Forbidden: .*"viewer" cannot get resource "pods/proxy"', checks["strict-arp"]["notChecked"])
    assert set(whats(done)) == set(found) - unmade


@dataclass(frozen=True, slots=True)
class Agents:
    """The agents of the group, whose answers are files that a server in the namespace serves."""

    deployment: Deployment
    answers: dict[str, AgentState] = field(default_factory=dict)

    def answer(self, node: str, **more: Any) -> None:
        """Let the agent of *node* answer this from now on."""
        self.answers[node] = AgentState(group="lb/edge", keepalived=RUNNING, **more)

    def write(self) -> None:
        """Write the answers, with the hash of the configuration that the controller has published."""
        found = self.deployment.plane.kubectl(
            "get", "configmap", "edge", "--namespace=lb", "--output=json", "--ignore-not-found"
        ).stdout
        config = decode_config(json.loads(found)["data"][names.AGENT_KEY]) if found else None
        for node, state in self.answers.items():
            whole = msgspec.structs.replace(state, wanted_hash=config.config_hash if config else "")
            (self.deployment.state / f"{node}.json").write_bytes(msgspec.json.encode(whole))


def awaited(agents: Agents, condition: Callable[[Result], bool], *, user: str = "") -> Result:
    """Run the command as *user* until its result satisfies *condition*; return that result."""
    deployment, done = agents.deployment, Result([], 0, "", "")
    kubeconfig = deployment.plane.user(user) if user else deployment.plane.kubeconfig
    command = (sys.executable, "-m", "kavip", "doctor", "--output=json", f"--kubeconfig={kubeconfig}")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        agents.write()
        done = run(deployment.machine.command(*command), check=False, timeout=PATIENCE)
        if condition(done):
            return done
        time.sleep(1)
    pytest.fail(f"not within {PATIENCE} s; at last:\n{done.returncode}\n{done.stdout}\n{done.stderr}")


def whats(done: Result) -> dict[str, list[str]]:
    """What each check has found; nothing if the cluster did not answer."""
    found: dict[str, list[str]] = {}
    for each in json.loads(done.stdout)["findings"] if done.stdout else ():
        found.setdefault(each["check"], []).append(each["what"])
    return found


def is_sound(done: Result) -> bool:
    """Whether each check was made, and has found nothing; on a busy machine an agent may not answer in time."""
    results = {each["result"] for each in json.loads(done.stdout)["checks"]} if done.stdout else set()
    return (done.returncode, results, done.stderr) == (0, {"OK"}, "")


def is_broken(done: Result) -> bool:
    """Whether the checks have found what is broken, and nothing else, besides the rights."""
    found = {name: re.sub(r"\d+ s", "... s", each[0]) for name, each in whats(done).items() if name != "rights"}
    return (done.returncode, found, done.stderr) == (1, BROKEN, "")


def prepare(deployment: Deployment) -> Agents:
    """Install kavip with a group and a pool, and start agents on two nodes."""
    deployment.install("webhook.failurePolicy.mutating=Ignore")
    plane = deployment.plane
    ready = json.dumps({"status": {"replicas": 2, "readyReplicas": 2}})
    plane.kubectl("patch", "deployment", "kavip", deployments.OWN, "--subresource=status", f"--patch={ready}")
    plane.kubectl("create", "namespace", "lb")
    apply(deployment, object_of("ServiceAccount", "default", namespace="lb"))
    for name, address in NODES.items():
        run(deployment.machine.command("ip", "address", "add", f"{address}/24", "dev", "lo"))
        apply(deployment, object_of("Node", name))
        patch_status(deployment, "node", name, {"addresses": [{"type": "InternalIP", "address": address}]})
        serve = (sys.executable, "-m", "tests.app.agentfile", address, str(deployment.state / f"{name}.json"))
        deployment.machine.spawn(*serve, log=deployment.state / f"{name}.log")
        container = {"name": "agent", "image": "example/agent"}
        spec = {"nodeName": name, "hostNetwork": True, "containers": [container]}
        labels = {names.GROUP_LABEL: "edge"}
        apply(deployment, object_of("Pod", f"edge-{name}", namespace="lb", labels=labels, spec=spec))
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        patch_status(deployment, "pod", f"edge-{name}", status, "--namespace=lb")
    deployment.start()
    created = [a_pool("edge", "198.51.100.0/28"), a_group("edge", default=True, metricsPort=names.AGENT_PORT)]
    wait_for(
        "the webhook admits them", lambda: apply(deployment, *created, check=False) == 0, timeout=PATIENCE, interval=1
    )
    return Agents(deployment)


def break_things(deployment: Deployment, agents: Agents) -> None:
    """Break what the administrator and the nodes can break, and at last the rights of kavip."""
    master = InstanceReport(name="shop/web", router_id=1, state="MASTER")
    arp = NodeProblem(ProblemCode.STRICT_ARP_OFF, "this node answers ARP for VIPs of other nodes")
    agents.answer("n1", instances=(master,), notes=(arp,))
    agents.answer("n2", instances=(master,), missing_interfaces=("vlan7",))
    plane = deployment.plane
    plane.kubectl("delete", "validatingwebhookconfiguration", "kavip")
    patch_status(deployment, "deployment", "kavip", {"readyReplicas": 0}, deployments.OWN)
    shown = (datetime.now(UTC) - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    late = {"renewTime": shown, "holderIdentity": "n1"}
    lease = object_of("Lease", "n1", namespace="kube-node-lease", version="coordination.k8s.io/v1", spec=late)
    container = {"name": "speaker", "image": "quay.io/metallb/speaker:v0.15.2"}
    labels = {"app": "speaker"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    speaker = object_of("DaemonSet", "speaker", namespace="lb", version="apps/v1", spec=spec)
    broken = (a_group("second", default=True), a_pool("edge", "192.0.2.16/28"), lease, speaker)
    wait_for("kavip is not asked", lambda: apply(deployment, *broken, check=False) == 0, timeout=PATIENCE, interval=1)
    lost = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/conflictDetection"
    patch = json.dumps([{"op": "remove", "path": lost}])
    plane.kubectl("patch", "crd", "vippools.kavip.io", "--type=json", f"--patch={patch}")
    plane.kubectl("delete", "clusterrolebinding", "kavip")


def permit_reading(deployment: Deployment) -> None:
    """Permit a user to read objects, and nothing else."""
    plane = deployment.plane
    plane.kubectl("create", "clusterrole", READER, "--verb=get,list", f"--resource={READABLE}")
    plane.kubectl("create", "clusterrolebinding", READER, f"--clusterrole={READER}", f"--user={READER}")
    may = ("auth", "can-i", "list", "vippools.kavip.io", f"--as={READER}")
    wait_for("the user may read", lambda: plane.kubectl(*may, check=False).returncode == 0, timeout=PATIENCE)


def apply(deployment: Deployment, *objects: Mapping[str, Any], check: bool = True) -> int:
    """Run ``kubectl apply`` for *objects*; return the exit status, or with *check* raise if it fails."""
    text = "\n---\n".join(map(json.dumps, objects))
    return deployment.plane.kubectl("apply", "--filename=-", input=text, check=check).returncode


def patch_status(deployment: Deployment, kind: str, name: str, status: Mapping[str, Any], *where: str) -> None:
    """Write parts of the status of an object."""
    patch = json.dumps({"status": status})
    deployment.plane.kubectl("patch", kind, name, *where, "--subresource=status", f"--patch={patch}")
