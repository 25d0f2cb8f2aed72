"""The cluster of the attempts: the chart, a group with its objects as kavip writes them, and objects of others."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from hack.demo.session import MANIFESTS
from hack.escalations.account import Account, apply
from hack.testbed.controlplane import CONTROLLERS, ControlPlane
from hack.testbed.place import run
from hack.testbed.process import wait_for
from hack.testbed.programs import Programs
from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.reconcile.group import manifests

NAMESPACE: Final = "kavip"
CONTROLLER: Final = "controller"
WEBHOOK: Final = "webhook"
TOPOLOGIES: Final = ("combined", "split")
LISTED: Final = "registry.example.com/keepalived:2"
OWN: Final = "localhost/kavip:0.2.0"
MIXED: Final = "mixed"
"""The group whose DaemonSet has a privileged sidecar, which an administrator added."""
POLICIES: Final = json.dumps({"images": [LISTED], "serviceAccounts": ["kavip-node"]})
POOL: Final = "lan"
"""The pool of the chart's values; the group there is lb/edge."""
VALUES: Final = (
    f'pools=[{{"name": "{POOL}", "spec": {{"addresses": ["192.0.2.0/28"]}}}}]',
    'groups=[{"name": "edge", "namespace": "lb", "spec": {"interface": "eth0"}}]',
)
_ROOT: Final = Path(__file__).parents[2]
_CHART: Final = _ROOT / "charts" / "kavip"
_FOREIGN: Final = _ROOT / "tests" / "support" / "foreign-crds.yaml"
_PATIENCE: Final = 150

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """*plane* with the chart and all objects; *accounts* of kavip."""

    plane: ControlPlane
    accounts: Sequence[Account]
    group: KeepalivedGroup

    @property
    def controller(self) -> Account:
        """The account of the controller."""
        return self.account(CONTROLLER)

    def account(self, component: str) -> Account:
        """The account of *component*; with one Deployment, both have the same."""
        return next((each for each in self.accounts if each.name.endswith(component)), self.accounts[0])

    def may_write(self) -> bool:
        """Whether the controller may make a group's objects: API servers look for new kinds twice a minute."""
        body = json.loads(json.dumps(owned(self.group)[0]).replace("edge", "legacy-new"))
        return self.controller.send(apply("/api/v1/namespaces/lb/configmaps", body)).is_accepted


@contextmanager
def stage(programs: Programs, state: Path, topology: str) -> Iterator[Stage]:
    """Start a control plane, install the chart with lists and *topology*, and make the objects."""
    with ControlPlane(programs, state, components=(CONTROLLERS,)) as plane:
        serve_foreign_kinds(plane)
        install(programs, plane, state, f"policies={POLICIES}", f'topology="{topology}"', *VALUES)
        group = make_objects(plane)
        accounts = [Account(plane, NAMESPACE, name) for name in account_names(plane)]
        for account in accounts:
            wait_permitted(plane, account.name)
        staged = Stage(plane, accounts, group)
        wait_for("the policies accept objects of groups", staged.may_write, timeout=_PATIENCE, interval=0.2)
        yield staged


def install(programs: Programs, plane: ControlPlane, state: Path, *values: str) -> None:
    """Install the chart with *values* (``key=JSON``); nothing answers its webhooks."""
    down = 'webhook.failurePolicy={"validating": "Ignore"}'
    settings = [argument for value in (down, *values) for argument in ("--set-json", value)]
    command = ["upgrade", "--install", "kavip", str(_CHART), f"--namespace={NAMESPACE}", "--create-namespace"]
    run([programs["helm"], *command, *settings], env={"KUBECONFIG": str(plane.kubeconfig), "HOME": str(state)})
    _wait_served(plane, names.KEEPALIVED_GROUP, names.VIP_POOL)


def serve_foreign_kinds(plane: ControlPlane) -> None:
    """Let *plane* serve the kinds of Prometheus' operator and of OpenShift."""
    plane.kubectl("create", f"--filename={_FOREIGN}")
    _wait_served(plane, names.POD_MONITOR)


def _wait_served(plane: ControlPlane, *kinds: str) -> None:
    """Wait until *plane* serves *kinds*: a kind is established first and served later."""
    listing = ("get", ",".join(kinds), "--all-namespaces")
    plane.wait_established()
    wait_for(
        f"{kinds} are served",
        lambda: not plane.kubectl(*listing, check=False).returncode,
        timeout=_PATIENCE,
        interval=0.2,
    )


def account_names(plane: ControlPlane) -> list[str]:
    """The accounts that the chart made."""
    found = plane.kubectl("get", "serviceaccounts", f"-n{NAMESPACE}", "-o", "name").stdout.split()
    return sorted(name for each in found if (name := each.partition("/")[2]).startswith("kavip"))


def wait_permitted(plane: ControlPlane, account: str) -> None:
    """Wait until the API server, which reads RBAC objects by watches, permits *account* what the chart grants."""
    user = f"--as=system:serviceaccount:{NAMESPACE}:{account}"

    def holds() -> bool:
        return not plane.kubectl("auth", "can-i", "list", "services", "-A", user, check=False).returncode

    wait_for(f"{account} has its rights", holds, timeout=_PATIENCE)


# --- objects ----------------------------------------------------------------------------------------------------------
def make_objects(plane: ControlPlane) -> KeepalivedGroup:
    """Make the group lb/edge with its objects, and what belongs to others; return the group."""
    for name in ("lb", "shop"):
        plane.kubectl("create", "namespace", name)
    group, legacy, mixed = (_created_group(plane, name) for name in ("edge", "legacy", MIXED))
    for namespace in (NAMESPACE, "kube-system"):  # from before the policies, or by mistake
        _created_group(plane, "edge", namespace)
    objects = [*owned(group), own_pod(), _with_sidecar(mixed), *foreign_objects()]
    objects += _predecessor(legacy)
    for each in objects:
        _make(plane, each)
    daemonset = json.loads(plane.kubectl("get", "daemonset", "edge", "-nlb", "-o", "json").stdout)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "edge", "uid": daemonset["metadata"]["uid"]}
    patch = {"metadata": {"ownerReferences": [{**owner, "controller": True}]}}
    plane.kubectl("patch", "pod", "edge-n1", "-nlb", "--type=merge", f"--patch={json.dumps(patch)}")
    return group


def owned(group: KeepalivedGroup) -> list[Manifest]:
    """The objects of *group* as kavip writes them."""
    data = {names.CONFIG_KEY: "# text", names.AGENT_KEY: "{}"}
    configmap = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": manifests.metadata_of(group), "data": data}
    daemonset = manifests.daemon_set(group, image=OWN, port=names.AGENT_PORT)
    return [configmap, daemonset, *manifests.monitoring(group, account=names.PROMETHEUS_ACCOUNT)]


def _with_sidecar(group: KeepalivedGroup) -> Manifest:
    daemonset = manifests.daemon_set(group, image=OWN, port=names.AGENT_PORT)
    sidecar = {"name": "sidecar", "image": "sidecar", "securityContext": {"privileged": True}}
    daemonset["spec"]["template"]["spec"]["containers"].append(sidecar)
    return daemonset


def own_pod() -> Manifest:
    """A pod of the group; it never runs."""
    return _pod("edge-n1", "lb", {names.GROUP_LABEL: "edge"}, names.KEEPALIVED_CONTAINER, names.AGENT_CONTAINER)


def foreign_objects() -> list[Manifest]:
    """Objects of other programs."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web"}]}}
    service = {"type": "LoadBalancer", "ports": [{"port": 80}], "allocateLoadBalancerNodePorts": False}
    return [
        {**_object("apps/v1", "DaemonSet", "web"), "spec": {"selector": {"matchLabels": labels}, "template": template}},
        {**_object("v1", "ConfigMap", "web"), "data": {"a": "b"}},
        {**_object("v1", "Secret", "web"), "stringData": {"password": "x"}},
        _pod("web", "shop", labels, "web"),
        {**_object("v1", "Service", "web"), "spec": service},
        {**_object("v1", "Service", "other"), "spec": {**service, "loadBalancerClass": "example.com/other"}},
        {**_object("v1", "ConfigMap", "coredns", "kube-system"), "data": {"Corefile": "."}},
        {**_object("v1", "Node", "n1", ""), "metadata": {"name": "n1"}},
    ]


def _created_group(plane: ControlPlane, name: str, namespace: str = "lb") -> KeepalivedGroup:
    body = _object("redhatcop.redhat.io/v1alpha1", names.KEEPALIVED_GROUP, name, namespace)
    _make(plane, {**body, "spec": {"interface": "eth0"}})
    text = plane.kubectl("get", "keepalivedgroup", name, f"-n{namespace}", "-o", "json").stdout
    return msgspec.json.decode(text, type=KeepalivedGroup)


def _predecessor(group: KeepalivedGroup) -> list[Manifest]:
    """What keepalived-operator has made for *group*, with a pod."""
    configmap, daemonset = yaml.safe_load_all((MANIFESTS / "predecessor.yaml").read_text())
    for each in (configmap, daemonset):
        each["metadata"]["ownerReferences"] = manifests.metadata_of(group)["ownerReferences"]
    pod = _pod("legacy-n1", "lb", {names.GROUP_LABEL: "legacy"}, "keepalived", "config-reloader")
    return [configmap, daemonset, pod]


def _object(version: str, kind: str, name: str, namespace: str = "shop") -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}


def _pod(name: str, namespace: str, labels: dict[str, str], *containers: str) -> Manifest:
    body = _object("v1", "Pod", name, namespace)
    body["metadata"]["labels"] = labels
    return {**body, "spec": {"containers": [{"name": each, "image": each} for each in containers]}}


def _make(plane: ControlPlane, body: Manifest) -> None:
    """Apply an object as kavip does; a new namespace may have no account yet, without which it takes no pod."""
    command = ("apply", "--server-side", f"--field-manager={names.FIELD_MANAGER}", "--filename=-", "--validate=false")

    def made() -> bool:
        done = plane.kubectl(*command, input=json.dumps(body), check=False)
        if done.returncode and "serviceaccount" not in done.stderr:
            raise AssertionError(done.stderr)
        return not done.returncode

    wait_for(f"{body['kind']} {body['metadata']['name']} is made", made, timeout=_PATIENCE)
