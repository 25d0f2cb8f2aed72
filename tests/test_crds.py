"""The CRDs on a real API server: what is accepted, what is refused, and what the refusal says."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from hack.testbed.process import wait_for
from kavip import names
from tests import files

pytestmark = pytest.mark.apiserver

GROUP_API = f"{names.REDHATCOP_GROUP}/{names.VERSION}"
POOL_API = f"{names.KAVIP_GROUP}/{names.VERSION}"
PLURALS = ("keepalivedgroups", "vippools")


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> ControlPlane:
    """An API server that serves both kinds."""
    manifests = [argument for path in files.CRDS for argument in ("--filename", str(path))]
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", *manifests)
    crds = [f"crd/{files.parsed(path.read_text())[0]['metadata']['name']}" for path in files.CRDS]
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *crds)
    for plural in PLURALS:  # established is not yet served
        wait_for(
            f"the API server serves {plural}",
            lambda plural=plural: not control_plane.kubectl("get", plural, "-A", check=False).returncode,
            timeout=60,
            interval=0.2,
        )
    return control_plane


def group(**spec: Any) -> files.Object:
    """A KeepalivedGroup."""
    metadata = {"name": "shape", "namespace": "default"}
    return {"apiVersion": GROUP_API, "kind": "KeepalivedGroup", "metadata": metadata, "spec": spec}


def new(**spec: Any) -> files.Object:
    """A KeepalivedGroup with some of kavip's own fields."""
    return group(interface="eth0", **spec)


def pool(*addresses: str, **spec: Any) -> files.Object:
    """A VIPPool."""
    spec = {"addresses": list(addresses) or ["192.0.2.0/28"], **spec}
    return {"apiVersion": POOL_API, "kind": "VIPPool", "metadata": {"name": "shape"}, "spec": spec}


def check(name: str = "web", **more: Any) -> files.Object:
    """A health check."""
    return {"name": name, "url": "http://192.0.2.1/", **more}


def refusal(server: ControlPlane, subject: files.Object) -> str:
    """What the API server says against *subject*; "" where it would accept it."""
    done = server.kubectl("create", "--dry-run=server", "--filename=-", input=json.dumps(subject), check=False)
    return done.stderr if done.returncode else ""


@pytest.mark.parametrize(
    "subject",
    [
        {"apiVersion": GROUP_API, "kind": "KeepalivedGroup", "metadata": {"name": "bare", "namespace": "default"}},
        group(interface=""),
        group(interface="an interface that no kernel would take, and far too long"),
        group(interface="ens3", blacklistRouterIDs=[-5, 0, 999]),
        group(interface="ens3", interfaceFromIP="192.0.2.1"),
        group(interface="ens3", interfaceFromIP="::ffff:192.0.2.1"),
        group(interface="ens3", passwordAuth={"secretRef": {}}),
        group(interface="ens3", passwordAuth={"secretRef": {"name": "vrrp"}, "secretKey": "key"}),
        group(interface="ens3", verbatimConfig={"vrrp_iptables": "my-keepalived", "": ""}),
        group(interface="ens3", image="", nodeSelector={"node-role.kubernetes.io/worker": ""}),
        group(interface="ens3", unicastEnabled=True, daemonsetPodPriorityClassName="", daemonsetPodAnnotations={}),
    ],
    ids=lambda subject: json.dumps(subject.get("spec")),
)
def test_what_keepalived_operator_accepts_is_accepted(server: ControlPlane, subject: files.Object) -> None:
    """Objects of the predecessor pass, also those that make no sense."""
    assert refusal(server, subject) == ""


@pytest.mark.parametrize(
    "subject",
    [
        new(interfaceFromIP="2001:db8::1"),
        new(interfaceFromIP=""),
        new(vrrpInterface="eth0.100", virtualIPs=[{"address": "192.0.2.9/24"}, {"address": "2001:db8::9"}]),
        new(checks=[check(), check("api", url="kube-apiserver", onFailure="LowerPriority", weight=20)]),
        new(checks=[check(url="https://192.0.2.1:6443/livez", caFrom={"name": "ca"})]),
        new(noPreempt=True, preemptDelaySeconds=0),
        new(vrrpVersion=3, advertIntervalMilliseconds=200, segment="default"),
        new(vrrpVersion=2, advertIntervalMilliseconds=255000, passwordAuth={"secretRef": {"name": "vrrp"}}),
        new(advertIntervalMilliseconds=10),
        new(instances={"mode": "Shared"}, metricsPort=9651, openshiftClusterName="ocp"),
        new(allowedNamespaces={"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}),
        new(allowVerbatim=["garp_master_delay"], allowScripts=True, agentImage="registry.example/kavip:1"),
        new(resources={"requests": {"cpu": "10m", "memory": 1048576}}, tolerations=[{"operator": "Exists"}]),
        new(affinity={"nodeAffinity": {}}, imagePullSecrets=[{"name": "pull"}], serviceAccountName="edge"),
        new(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}),
        pool(
            "192.0.2.0/28", "192.0.2.100-192.0.2.120", "192.0.2.77", "2001:DB8::/120", "2001:db8:1::1 - 2001:db8:1::9"
        ),
        pool("0.0.0.0/0", "::/0", "255.255.255.255/32", "::1", "1:2:3:4:5:6:7:8/128", "64:ff9b::192.0.2.0/120"),
        pool(exclude=["192.0.2.1"], autoAssign=False, priority=0, cooldownSeconds=0, maxPerNamespace=0),
        pool(groups=["lb/edge"], reservations=[{"address": "192.0.2.3", "service": "shop/web"}]),
        *(sample for sample in files.objects(*files.SAMPLES) if sample["kind"] != "Service"),
    ],
    ids=lambda subject: json.dumps(subject["spec"]),
)
def test_new_fields_are_accepted(server: ControlPlane, subject: files.Object) -> None:
    """What kavip adds can be written as its descriptions say."""
    assert refusal(server, subject) == ""


@pytest.mark.parametrize(
    ("subject", "field", "message"),
    [
        (new(vrrpInterface="lo"), "spec.vrrpInterface", "not an interface name"),
        (new(virtualIPs=[{"address": "192.0.2"}]), "spec.virtualIPs[0].address", "want 192.0.2.10"),
        (new(virtualIPs=[{"address": "192.0.2.1"}] * 2), "spec.virtualIPs[1]", "Duplicate value"),
        (new(checks=[check(), check()]), "spec.checks[1]", "Duplicate value"),
        (new(checks=[{"url": "kubelet"}]), "spec.checks[0].name", "Required value"),
        (new(checks=[check(url="ftp://192.0.2.1")]), "spec.checks[0].url", "want kubelet, kube-apiserver"),
        (new(checks=[check(timeoutSeconds=3)]), "spec.checks[0].timeoutSeconds", "at most intervalSeconds"),
        (new(checks=[check(weight=3)]), "spec.checks[0].weight", "only onFailure LowerPriority"),
        (new(noPreempt=True, preemptDelaySeconds=3), "spec.preemptDelaySeconds", "set one of the two"),
        (new(vrrpVersion=4), "spec.vrrpVersion", 'supported values: "2", "3"'),
        (new(vrrpVersion=3, passwordAuth={"secretRef": {"name": "v"}}), "spec.vrrpVersion", "has no password"),
        (new(vrrpVersion=2, advertIntervalMilliseconds=200), "spec.advertIntervalMilliseconds", "whole seconds"),
        (new(vrrpVersion=3, advertIntervalMilliseconds=50000), "spec.advertIntervalMilliseconds", "at most 40950"),
        (new(advertIntervalMilliseconds=205), "spec.advertIntervalMilliseconds", "multiple of 10"),
        (new(segment=""), "spec.segment", "should match"),
        (new(instances={"mode": "shared"}), "spec.instances.mode", 'supported values: "PerService", "Shared"'),
        (new(instances={"count": 256}), "spec.instances.count", "less than or equal to 255"),
        (new(metricsPort=0), "spec.metricsPort", "greater than or equal to 1"),
        (new(allowVerbatim=["Garp Delay"]), "spec.allowVerbatim[0]", "should match"),
        (
            new(allowedNamespaces={"matchExpressions": [{"key": "team", "operator": "In"}]}),
            "spec.allowedNamespaces.matchExpressions[0].values",
            "In and NotIn need values",
        ),
        (pool("192.0.2.1-2001:db8::1"), "spec.addresses[0]", "a range of one family"),
        (pool("192.0.2.256"), "spec.addresses[0]", "not an address"),
        (pool("2001:db8::/129"), "spec.addresses[0]", "not an address"),
        (pool("192.0.2.0/28 "), "spec.addresses[0]", "not an address"),
        (pool("192.0.2.0/33"), "spec.addresses[0]", "not an address"),
        (pool("192.0.2.1-192.0.2.2-192.0.2.3"), "spec.addresses[0]", "not an address"),
        (pool("fe80::1%eth0"), "spec.addresses[0]", "not an address"),
        (pool("2001:db8"), "spec.addresses[0]", "not an address"),
        (pool("192.0.2.010"), "spec.addresses[0]", "not an address"),
        (pool(""), "spec.addresses[0]", "not an address"),
        (pool(addresses=[]), "spec.addresses", "should have at least 1 items"),
        (pool("192.0.2.1", "192.0.2.1"), "spec.addresses[1]", "Duplicate value"),
        (pool(exclude=["web"]), "spec.exclude[0]", "not an address"),
        (pool(priority=-1), "spec.priority", "greater than or equal to 0"),
        (pool(cooldownSeconds=-1), "spec.cooldownSeconds", "greater than or equal to 0"),
        (pool(maxPerNamespace=-1), "spec.maxPerNamespace", "greater than or equal to 0"),
        (pool(groups=["edge"]), "spec.groups[0]", "want namespace/name"),
        (
            pool(reservations=[{"address": "192.0.2.3", "service": "x"}]),
            "spec.reservations[0].service",
            "want namespace",
        ),
        (pool(reservations=[{"address": "x", "service": "a/b"}]), "spec.reservations[0].address", "one IPv4 or IPv6"),
        ({"apiVersion": POOL_API, "kind": "VIPPool", "metadata": {"name": "bare"}}, "spec", "Required value"),
    ],
    ids=lambda value: json.dumps(value.get("spec")) if isinstance(value, dict) else "",
)
def test_bad_shapes_are_refused(server: ControlPlane, subject: files.Object, field: str, message: str) -> None:
    """The refusal names the field, and says what would be right."""
    said = refusal(server, subject)
    assert f"{field}: " in said
    assert message in said


@pytest.mark.parametrize("field", ["spec.colour", "status.colour"])
def test_unknown_fields_are_named(server: ControlPlane, field: str) -> None:
    """kubectl's strict validation knows every field."""
    part, _, name = field.partition(".")
    said = refusal(server, {**pool(), part: {**pool().get(part, {}), name: "red"}})
    assert f'unknown field "{field}"' in said


@pytest.fixture
def stored(server: ControlPlane) -> Iterator[str]:
    """A pool with an odd name that nobody works on."""
    subject = {**pool(), "metadata": {"name": "crd-shape"}}
    server.kubectl("create", "--filename=-", input=json.dumps(subject))
    yield "crd-shape"
    server.kubectl("delete", "vippool", "crd-shape", "--ignore-not-found")


def test_a_pool_nobody_looked_at_says_so(server: ControlPlane, stored: str) -> None:
    """A new pool has the conditions Accepted and Ready, Unknown, for the reason Pending."""
    read = json.loads(server.kubectl("get", "vippool", stored, "--output=json").stdout)
    conditions = {each["type"]: (each["status"], each["reason"]) for each in read["status"]["conditions"]}
    assert conditions == {"Accepted": ("Unknown", "Pending"), "Ready": ("Unknown", "Pending")}


def test_status_is_written_apart(server: ControlPlane, stored: str) -> None:
    """Status is a subresource: who writes it cannot change the spec, and the other way round."""
    change = {"spec": {"priority": 7}, "status": {"ipv4": {"total": 16, "assigned": 3, "available": 13}}}
    patch = ["--type=merge", f"--patch={json.dumps(change)}"]
    server.kubectl("patch", "vippool", stored, "--subresource=status", *patch)
    read = json.loads(server.kubectl("get", "vippool", stored, "--output=json").stdout)
    assert read["spec"]["priority"] == 100
    assert read["status"]["ipv4"]["assigned"] == 3


def test_kubectl_prints_what_matters(server: ControlPlane, stored: str) -> None:
    """The short name works, and the columns are there."""
    header, line = server.kubectl("get", "vipp", stored).stdout.splitlines()
    assert header.split() == ["NAME", "ADDRESSES", "AUTO", "IPV4-USED", "IPV4-FREE", "READY", "AGE"]
    assert line.split()[:3] == [stored, '["192.0.2.0/28"]', "true"]
