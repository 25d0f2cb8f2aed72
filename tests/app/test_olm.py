"""The bundle on a real API server, with the part of the Operator Lifecycle Manager played as its source code has it."""

import json
from base64 import b64decode
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import kavip
from hack.bundle import olm
from hack.bundle.olm import IN, NAMESPACE, REGISTRATIONS, Olm
from hack.testbed import runs
from hack.testbed.controlplane import CONTROLLERS
from hack.testbed.place import Result, run
from hack.testbed.process import wait_for
from hack.testbed.programs import Programs
from kavip import names
from kavip.admission import registration
from kavip.admission.registration import RegistrationOptions, ServiceClientConfig
from tests.app import deployment as deployments
from tests.app.deployment import Deployment, Writer
from tests.app.longtimeouts import LONGEST
from tests.app.olmpods import OF_HELM, Pods
from tests.support import manifests

pytestmark = [pytest.mark.apiserver, pytest.mark.netns, pytest.mark.chart, pytest.mark.timeout(900)]

FIRST, SECOND = f"kavip.v{kavip.__version__}", "kavip.v99.0.0"
MANAGED = {names.GROUP_ANNOTATION: "lb/edge"}
POOL = {"apiVersion": "kavip.io/v1alpha1", "kind": "VIPPool", "metadata": {"name": "lan"}}
GROUP = {"apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "KeepalivedGroup"}
PREDECESSOR = manifests.ROOT / "tests" / "chart" / "predecessor"
ESCALATIONS: tuple[tuple[str, Any, str], ...] = (
    ("rules/0/resources", ["secrets"], "only webhooks for Services"),
    ("clientConfig", {"url": "https://192.0.2.66/"}, "only the Service kavip-webhook-service"),
    ("matchConditions", [], "would refuse them while kavip is down"),
)
until = partial(wait_for, timeout=150)
OPERATOR = "keepalived-operator.v1.5.4"


@pytest.fixture
def deployment(programs: Programs) -> Iterator[Deployment]:
    """A control plane with garbage collection in its own network namespace."""
    with runs.temporary() as state, deployments.running(programs, state, components=[CONTROLLERS]) as found:
        found.plane.kubectl("create", f"--filename={manifests.FOREIGN_CRDS}")
        found.plane.wait_established()
        for name in (NAMESPACE, "lb"):
            found.plane.kubectl("create", "namespace", name)
        yield found
        for log in sorted(state.glob("kavip-*.log")):
            print(f"--- {log.name}\n{log.read_text()[-6000:]}")  # noqa: T201 - shown when the test fails


@pytest.fixture
def manager(deployment: Deployment) -> Olm:
    """OLM."""
    return Olm(deployment.plane, timeout=LONGEST)


@pytest.fixture
def pods(deployment: Deployment) -> Pods:
    """The pods of what OLM makes."""
    return Pods(deployment)


def test_olm_installs_kavip(deployment: Deployment, manager: Olm, pods: Pods, programs: Programs) -> None:
    """
    From the bundle to an address; kavip registers the webhooks for Services with the chart's selectors.

    Scaled to zero, plain Services apply. After the ClusterServiceVersion no webhook is left; pools and groups stay.
    """
    manager.install(olm.bundle(programs["helm"]))
    deployment.plane.kubectl("apply", "-k", str(manifests.CONFIG / "olm" / "policies"))
    pods.start_all()
    until("kavip registers its webhooks", lambda: trusted(deployment) == [manager.ca] * 2)
    expected = registration.configurations(
        "kavip",
        ServiceClientConfig(NAMESPACE, "kavip-webhook-service"),
        namespace=NAMESPACE,
        options=RegistrationOptions(services_only=True),
    )
    assert [selectors(each) for each in registered(deployment)] == [selectors(each) for each in expected]
    for each in registered(deployment):
        assert each["metadata"]["labels"].items() >= olm.owner_labels(FIRST).items()

    apply(deployment, {**POOL, "spec": {"addresses": ["192.0.2.128/28"]}})
    until("the group is accepted", lambda: not make_group(deployment).returncode)
    refused = make_group(deployment, name="bad", verbatimConfig={"router_id": "x }"})
    assert "spec.verbatimConfig" in refused.stderr
    until("admission knows the group", lambda: not write(deployment, "web", annotations=MANAGED).returncode)
    until("it has an address", lambda: address(deployment, "web") == "192.0.2.128")
    assert refusals(deployment) == [], "neither RBAC nor a policy refuses what kavip does"
    for path, value, words in ESCALATIONS:
        patch = json.dumps([{"op": "replace", "path": f"/webhooks/0/{path}", "value": value}])
        as_kavip = (f"--as={olm.MINE}kavip-controller", "--type=json", f"--patch={patch}")
        tried = deployment.plane.kubectl("patch", "validatingwebhookconfiguration", "kavip", *as_kavip, check=False)
        assert words in tried.stderr

    pods.kill()
    assert not write(deployment, "plain").returncode
    assert not write(deployment, "plain", annotations={"example.com/changed": "true"}).returncode
    assert (
        'failed calling webhook "validate-service.kavip.io"' in write(deployment, "other", annotations=MANAGED).stderr
    )
    assert "failed calling webhook" in make_group(deployment, name="other").stderr

    pods.start_all()
    with deployment.writing() as writer:
        manager.rotate(FIRST)
        until("kavip trusts the new CA", lambda: all(manager.ca in each for each in trusted(deployment)))
        pods.roll()
        before = writer.written
        until("Services are written", lambda: writer.written >= before + 5)
    assert writer.failures == []
    assert not write(deployment, "other", annotations=MANAGED).returncode

    refused_before = len(refusals(deployment))
    manager.delete(FIRST)  # while its pods run: they see that their webhooks are deleted
    until("the Deployments are gone", lambda: listed(deployment, "deployments") == [])
    until("the pods have no rights", lambda: len(refusals(deployment)) > refused_before)
    pods.kill()
    assert listed(deployment, REGISTRATIONS) == []
    until("no webhook is called", lambda: not write(deployment, "another", annotations=MANAGED).returncode)
    assert address(deployment, "web") == "192.0.2.128"
    assert listed(deployment, "vippools") == ["lan"]
    assert listed(deployment, "keepalivedgroups") == ["edge"]


def test_an_update_keeps_the_webhooks(deployment: Deployment, manager: Olm, pods: Pods, programs: Programs) -> None:
    """A version that replaces another takes over certificate and webhooks; no write of a Service fails."""
    manager.install(olm.bundle(programs["helm"]))
    pods.start_all()
    apply(deployment, {**POOL, "spec": {"addresses": ["192.0.2.128/28"]}})
    until("the group is accepted", lambda: not make_group(deployment).returncode)
    until("admission knows the group", lambda: not write(deployment, "web", annotations=MANAGED).returncode)
    with deployment.writing() as writer:
        manager.install(olm.bundle(programs["helm"], version="99.0.0"))
        pods.roll()
        until("kavip writes its labels", lambda: {*owners(deployment)} == {SECOND})
        manager.delete(FIRST)
        before = writer.written
        until("Services are written", lambda: writer.written >= before + 5)
    assert writer.failures == []
    assert {*owners(deployment)} == {SECOND}
    until("roles are gone", lambda: FIRST not in " ".join(listed(deployment, "roles")))
    assert "is invalid" in write(deployment, "web", annotations={names.GROUP_ANNOTATION: "no-slash"}).stderr
    assert listed(deployment, "deployments") == ["kavip-controller", "kavip-webhook"]


def test_webhooks_that_olm_deletes_come_again(
    deployment: Deployment, manager: Olm, pods: Pods, programs: Programs
) -> None:
    """If OLM deletes the old version before kavip has written its labels, kavip registers its webhooks again."""
    manager.install(olm.bundle(programs["helm"]))
    pods.start_all()
    until("kavip registers its webhooks", lambda: len(owners(deployment)) == 2)
    deployment.plane.kubectl("delete", REGISTRATIONS, "kavip")
    until("kavip registers its webhooks again", lambda: len(owners(deployment)) == 2)


def test_no_write_waits_for_a_pod(deployment: Deployment, manager: Olm, pods: Pods, programs: Programs) -> None:
    """
    No write of a Service is refused because no pod answers yet: kavip registers its webhooks when one does.

    So it is at the first installation, after a user has deleted the webhooks, and if that was while no pod ran.
    """
    with deployment.writing() as writer:
        manager.install(olm.bundle(programs["helm"]))
        pods.start_all()
        until_reviewed(deployment, writer)
        deployment.plane.kubectl("delete", REGISTRATIONS, "kavip")
        until("kavip registers its webhooks again", lambda: len(owners(deployment)) == 2)
        until_reviewed(deployment, writer)
        with writer.paused():  # the API server refuses writes until a pod answers
            pods.kill()
            deployment.plane.kubectl("delete", REGISTRATIONS, "kavip")
            until("no webhook is called", lambda: not write(deployment, "unseen", annotations=MANAGED).returncode)
        before = writer.written
        until("Services are written", lambda: writer.written >= before + 5)
        pods.start_all()
        until_reviewed(deployment, writer)
    assert writer.failures == []


def test_from_helm(deployment: Deployment, manager: Olm, pods: Pods, programs: Programs) -> None:
    """
    After ``helm uninstall``, OLM's kavip continues: the pods of a group are not replaced, and VIPs and VRIDs stay.

    Meanwhile Services are written without a check; no write is refused.
    """
    repository, _, digest = olm.IMAGE.partition("@")
    image = (f"--set=image.repository={repository}", f"--set=image.digest={digest}")
    helm(deployment, "install", "kavip", str(manifests.CHART), *image)
    released = Pods(deployment, OF_HELM)
    released.start_all()
    apply(deployment, {**POOL, "spec": {"addresses": ["192.0.2.128/28"]}})
    until("the group is accepted", lambda: not make_group(deployment).returncode)
    until("admission knows the group", lambda: not write(deployment, "web", annotations=MANAGED).returncode)
    until("its VIP is published", lambda: is_published(deployment, "192.0.2.128"))
    before = served(deployment)

    helm(deployment, "uninstall", "kavip")
    released.kill()
    assert served(deployment) == before
    assert listed(deployment, "vippools") == ["lan"]
    until("no webhook is called", lambda: not write(deployment, "unseen", annotations=MANAGED).returncode)
    with deployment.writing() as writer:
        manager.install(olm.bundle(programs["helm"]))
        pods.start_all()
        until_reviewed(deployment, writer)
    assert writer.failures == []
    until("kavip serves what it has not seen", lambda: is_published(deployment, "192.0.2.129"))
    assert served(deployment) == before


def test_two_owners_of_a_kind(deployment: Deployment, manager: Olm, pods: Pods, programs: Programs) -> None:
    """
    OLM refuses kavip beside keepalived-operator, which owns the same kind.

    In the documented order, first its ClusterServiceVersion is deleted: its groups, their pods and Services stay as
    they are, and kavip takes over.
    """
    plane = deployment.plane
    plane.kubectl("create", "--field-manager=catalog", f"--filename={PREDECESSOR / 'crd.yaml'}")
    plane.wait_established()
    plane.kubectl("create", f"--filename={PREDECESSOR / 'objects.yaml'}")
    definition = "keepalivedgroups.redhatcop.redhat.io"
    owned = {"owned": [{"name": definition, "kind": "KeepalivedGroup", "version": "v1alpha1"}]}
    csv = {"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion"}
    metadata = {"name": OPERATOR, "namespace": "keepalived-operator"}
    apply(deployment, {**csv, "metadata": metadata, "spec": {"customresourcedefinitions": owned}})
    uid = get(deployment, olm.CSVS, OPERATOR, "-nkeepalived-operator")["metadata"]["uid"]
    owner = {"apiVersion": csv["apiVersion"], "kind": csv["kind"], "name": OPERATOR, "uid": uid}
    patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
    operator = ("deployment", "keepalived-operator-controller-manager", "-nkeepalived-operator")
    plane.kubectl("patch", *operator, f"--patch={patch}")

    before = kept(deployment)
    with pytest.raises(olm.OwnerConflictError, match=f"{OPERATOR} owns {definition}"):
        manager.install(olm.bundle(programs["helm"]))
    plane.kubectl("delete", olm.CSVS, OPERATOR, "-nkeepalived-operator")
    until("its operator is gone", lambda: plane.kubectl("get", *operator, check=False).returncode != 0)
    assert kept(deployment) == before
    manager.install(olm.bundle(programs["helm"]))
    assert kept(deployment) == before
    pods.start_all()
    until("kavip registers its webhooks", lambda: len(owners(deployment)) == 2)


# --- helpers ----------------------------------------------------------------------------------------------------------
def get(deployment: Deployment, *args: str) -> Any:
    """An object as JSON."""
    return json.loads(deployment.plane.kubectl("get", *args, "--output=json").stdout)


def apply(deployment: Deployment, body: dict[str, Any]) -> None:
    """Apply an object, which may have to wait for RBAC and webhooks."""
    flags = ("apply", "--server-side", "--filename=-")
    done = lambda: not deployment.plane.kubectl(*flags, input=json.dumps(body), check=False).returncode  # noqa: E731
    until(f"{body['kind']} is accepted", done)


def make_group(deployment: Deployment, *, name: str = "edge", **spec: Any) -> Result:
    """Apply a group."""
    body = {**GROUP, "metadata": {"name": name, "namespace": "lb"}, "spec": {"interface": "eth0", **spec}}
    return deployment.plane.kubectl("apply", "--filename=-", input=json.dumps(body), check=False)


def write(deployment: Deployment, name: str, *flags: str, annotations: dict[str, str] | None = None) -> Result:
    """Apply a Service."""
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "allocateLoadBalancerNodePorts": False}
    metadata = {"name": name, "namespace": "default", "annotations": annotations or {}}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    return deployment.plane.kubectl("apply", "--filename=-", *flags, input=json.dumps(body), check=False)


def until_reviewed(deployment: Deployment, writer: Writer) -> None:
    """Wait until kavip refuses a bad Service, and a few good ones are written after that."""
    bad, dry = {names.GROUP_ANNOTATION: "no-slash"}, "--dry-run=server"
    until("Services are reviewed", lambda: "is invalid" in write(deployment, "bad", dry, annotations=bad).stderr)
    before = writer.written
    until("Services are written", lambda: writer.written >= before + 5)


def address(deployment: Deployment, name: str) -> str:
    """The address in the status of a Service."""
    path = "--output=jsonpath={.status.loadBalancer.ingress[0].ip}"
    return deployment.plane.kubectl("get", "service", name, path).stdout


def listed(deployment: Deployment, kinds: str) -> list[str]:
    """The names of all objects of *kinds* that kavip has to do with."""
    path = "--output=jsonpath={.items[*].metadata.name}"
    return deployment.plane.kubectl("get", kinds, "--all-namespaces", path).stdout.split()


def registered(deployment: Deployment) -> list[dict[str, Any]]:
    """The two configurations that kavip registers; empty until both are there."""
    found = get(deployment, REGISTRATIONS)["items"]
    return [each for each in found if each["metadata"]["name"] == "kavip"]


def owners(deployment: Deployment) -> list[str]:
    """The ClusterServiceVersions in the labels of the two configurations."""
    return [each["metadata"]["labels"].get("olm.owner", "") for each in registered(deployment)]


def trusted(deployment: Deployment) -> list[bytes]:
    """The caBundle of each webhook for Services."""
    found = [hook["clientConfig"].get("caBundle", "") for each in registered(deployment) for hook in each["webhooks"]]
    return [b64decode(text) for text in found]


def selectors(configuration: dict[str, Any]) -> list[dict[str, Any]]:
    """By webhook, which requests the API server sends, and what happens without an answer."""
    kept_fields = ("name", "rules", "failurePolicy", "namespaceSelector", "matchConditions")
    return [{key: hook.get(key) for key in kept_fields} for hook in configuration["webhooks"]]


def helm(deployment: Deployment, *args: str) -> None:
    """Run helm in the namespace of kavip."""
    command = deployment.machine.command(deployment.programs["helm"], *args, IN)
    run(command, env={"KUBECONFIG": str(deployment.plane.kubeconfig), "HOME": str(deployment.state)})


def is_published(deployment: Deployment, vip: str) -> bool:
    """Whether the group tells its pods to serve *vip*."""
    return vip in json.dumps(get(deployment, "configmaps", "-nlb"))


def served(deployment: Deployment) -> list[Any]:
    """What the network sees: the template of the group's pods, and the address and the VRID of a Service."""
    daemonset = get(deployment, "daemonset", "edge", "-nlb")
    routers = get(deployment, "keepalivedgroup", "edge", "-nlb")["status"]["routerIDs"]
    identity = [daemonset["metadata"][key] for key in ("uid", "generation")]
    return [identity, daemonset["spec"], address(deployment, "web"), routers["default/web"]]


def kept(deployment: Deployment) -> list[Any]:
    """What must survive the operator: groups, their pods and configuration, Services."""
    found = get(deployment, "keepalivedgroups,daemonsets,configmaps", "-nkeepalived-operator")["items"]
    found += get(deployment, "services")["items"]
    return [
        [each["kind"], each["metadata"]["name"], each["metadata"].get("annotations"), each.get("spec")]
        for each in found
        if each["metadata"]["name"] != "kube-root-ca.crt"  # Kubernetes makes it some time after the namespace
    ]


def refusals(deployment: Deployment) -> list[str]:
    """The requests of kavip that RBAC or a policy refused."""
    return [
        f"{event.user} {event.verb} {event.uri}: {event.code}"
        for event in deployment.plane.audit
        if event.user.startswith(olm.MINE) and event.code in (403, 422)
    ]
