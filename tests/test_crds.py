"""The CRDs on a real API server: which objects are accepted, and the messages of refusals."""

import json
import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hack import refusals
from hack.refusals import Case, Manifest
from hack.testbed.controlplane import ControlPlane
from kavip.ipam.ranges import UNUSABLE, parse_range
from tests.support import crds, manifests
from tests.support.crds import POOL_API, check, group, new, pool, refusal

pytestmark = pytest.mark.apiserver


@st.composite
def ranges(draw: st.DrawFn) -> str:
    """A CIDR, a range or an address, in any notation."""
    bits = draw(st.sampled_from([32, 128]))
    first = draw(st.integers(0, 2**bits - 1) | st.integers(0, 2**16).map(lambda low: 0x20010DB8 << 96 | low))
    first %= 2**bits
    match draw(st.sampled_from(["address", "CIDR", "range"])):
        case "CIDR":
            length = draw(st.integers(1, bits))
            return f"{_written(draw, first >> bits - length << bits - length, bits)}/{length}"
        case "range":
            last = draw(st.integers(first, 2**bits - 1))
            return draw(st.sampled_from(["-", " - "])).join(_written(draw, end, bits) for end in (first, last))
    return _written(draw, first, bits)


def _written(draw: st.DrawFn, value: int, bits: int) -> str:
    if bits == 32:
        return str(IPv4Address(value))
    short = IPv6Address(value)
    high = IPv6Address(value >> 32 << 32).exploded.rpartition(":")[0].rpartition(":")[0]
    mixed = f"{high}:{IPv4Address(value & 2**32 - 1)}"
    return draw(st.sampled_from([str(short), short.exploded, str(short).upper(), mixed]))


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> ControlPlane:
    """An API server with both kinds, and the namespace of the samples."""
    crds.install(control_plane)
    control_plane.kubectl("apply", f"--filename={manifests.CONFIG / 'samples' / 'namespace.yaml'}")
    return control_plane


@pytest.mark.parametrize(
    "subject",
    [
        group(interface="ens3", blacklistRouterIDs=[1, 255]),
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
def test_what_keepalived_operator_accepts_is_accepted(server: ControlPlane, subject: manifests.Object) -> None:
    """Objects of users of keepalived-operator are accepted if keepalived can run them."""
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
        pool("1:2:3:4:5:6:7:8/128", "64:ff9b::192.0.2.0/120", "128.0.0.0/1", "192.0.2.7-192.0.2.7", "192.0.2.8/31"),
        pool(exclude=["192.0.2.1"], autoAssign=False, priority=0, cooldownSeconds=0, maxPerNamespace=0),
        pool(groups=["lb/edge"], reservations=[{"address": "192.0.2.3", "service": "shop/web"}]),
        *(sample for sample in manifests.objects(*manifests.SAMPLES) if sample["kind"] != "Service"),
    ],
    ids=lambda subject: json.dumps(subject["spec"]),
)
def test_new_fields_are_accepted(server: ControlPlane, subject: manifests.Object) -> None:
    """Fields that kavip adds can be written as their descriptions say."""
    assert refusal(server, subject) == ""


@pytest.mark.parametrize(
    ("subject", "field", "message"),
    [
        (group(), "spec.interface", "Required value"),
        (group(interface=""), "spec.interface", '"" is no interface name'),
        (group(interface="a-name-that-is-too-long"), "spec.interface", "want 1 to 15 letters"),
        (group(interface="eth0\n"), "spec.interface", '"eth0\\n" is no interface name'),
        (new(vrrpInterface="lo"), "spec.vrrpInterface", '"lo" is no interface name'),
        (new(interfaceFromIP="192.0.2.256"), "spec.interfaceFromIP", '"192.0.2.256" is no address'),
        (new(blacklistRouterIDs=[7, 0]), "spec.blacklistRouterIDs[1]", "0 is no virtual router ID; want 1 to 255"),
        (new(blacklistRouterIDs=[256]), "spec.blacklistRouterIDs[0]", "256 is no virtual router ID"),
        (new(blacklistRouterIDs=[7, 7]), "spec.blacklistRouterIDs[1]", "Duplicate value: 7"),
        (new(virtualIPs=[{"address": "192.0.2"}]), "spec.virtualIPs[0].address", '"192.0.2" is no address; want one'),
        (new(virtualIPs=[{"address": "192.0.2.1/33"}]), "spec.virtualIPs[0].address", "is no address"),
        (new(virtualIPs=[{"address": "127.0.0.1/8"}]), "spec.virtualIPs[0].address", "want an address of a host"),
        (new(virtualIPs=[{"address": "ff02::1"}]), "spec.virtualIPs[0].address", "want an address of a host"),
        (new(virtualIPs=[{"address": "::ffff:192.0.2.1"}]), "spec.virtualIPs[0].address", "want the IPv4 address"),
        (
            new(virtualIPs=[{"address": "192.0.2.1", "routerID": 256}]),
            "spec.virtualIPs[0].routerID",
            "less than or equal",
        ),
        (new(virtualIPs=[{"address": "192.0.2.1"}] * 2), "spec.virtualIPs[1]", "Duplicate value"),
        (
            new(virtualIPs=[{"address": "192.0.2.1"}, {"address": "192.0.2.1/24"}]),
            "spec.virtualIPs",
            "an address twice",
        ),
        (new(virtualIPs=[{"address": "192.0.2.1", "interface": "lo"}]), "spec.virtualIPs[0].interface", '"lo" is no'),
        (new(checks=[check(), check()]), "spec.checks[1]", "Duplicate value"),
        (new(checks=[{"url": "kubelet"}]), "spec.checks[0].name", "Required value"),
        (
            new(checks=[check(url="ftp://192.0.2.1")]),
            "spec.checks[0].url",
            '"ftp://192.0.2.1" is no URL to check; want',
        ),
        (new(checks=[check(timeoutSeconds=3)]), "spec.checks[0].timeoutSeconds", "3: want at most intervalSeconds, 2"),
        (new(checks=[check(weight=3)]), "spec.checks[0].weight", "want onFailure: LowerPriority, or no weight"),
        (new(noPreempt=True, preemptDelaySeconds=3), "spec.preemptDelaySeconds", "want one of the two"),
        (new(vrrpVersion=4), "spec.vrrpVersion", 'supported values: "2", "3"'),
        (
            new(vrrpVersion=3, passwordAuth={"secretRef": {"name": "v"}}),
            "spec.passwordAuth",
            "version 3 has no passwords",
        ),
        (
            new(vrrpVersion=2, advertIntervalMilliseconds=200),
            "spec.advertIntervalMilliseconds",
            "200: want whole seconds with version 2",
        ),
        (
            new(vrrpVersion=3, advertIntervalMilliseconds=50000),
            "spec.advertIntervalMilliseconds",
            "50000: want multiples of 10, up to 40950",
        ),
        (new(advertIntervalMilliseconds=205), "spec.advertIntervalMilliseconds", "multiple of 10"),
        (
            new(instances={"mode": "Shared", "count": 254}, blacklistRouterIDs=[1, 2]),
            "spec.instances.count",
            "254 is more than the 253 virtual router IDs that blacklistRouterIDs leaves",
        ),
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
        *(
            (pool(text), "spec.addresses[0]", f'"{text}" is no range; want a CIDR')
            for text in (
                *("192.0.2.1-2001:db8::1", "192.0.2.256", "2001:db8::/129", "192.0.2.0/28 ", "192.0.2.0/33", ""),
                *("192.0.2.1-192.0.2.2-192.0.2.3", "fe80::1%eth0", "2001:db8", "192.0.2.010"),
            )
        ),
        *(
            (pool(text), "spec.addresses[0]", f'"{text}" has host bits set')
            for text in ("192.0.2.7/24", "192.0.2.1/0", "192.0.2.1/31", "255.255.255.255/31", "128.0.0.1/1")
        ),
        (pool("192.0.2.9-192.0.2.8"), "spec.addresses[0]", "is reversed; want the lower address first"),
        (pool("193.0.0.0 - 192.255.255.255"), "spec.addresses[0]", "is reversed; want the lower address first"),
        *(
            (pool(text), "spec.addresses[0]", f'"{text}" holds addresses that no Service can have')
            for text in (
                *("0.0.0.0/0", "0.0.0.0", "127.0.0.0/8", "169.254.1.1", "192.0.2.1-224.0.0.1", "240.0.0.0/4"),
                *("255.255.255.255", "::", "::1", "::/0", "FE80::/64", "fe90::1", "ff02::1", "2001:db8::1-ff02::1"),
            )
        ),
        *(
            (pool(text), "spec.addresses[0]", f'"{text}" is IPv4 written as IPv6')
            for text in (
                "::ffff:192.0.2.1",
                "::FFFF:c000:0200/120",
                "0:0:0:0:0:ffff:192.0.2.1-0:0:0:0:0:ffff:192.0.2.9",
            )
        ),
        (pool(addresses=[]), "spec.addresses", "should have at least 1 items"),
        (pool("192.0.2.1", "192.0.2.1"), "spec.addresses[1]", "Duplicate value"),
        (pool(exclude=["web"]), "spec.exclude[0]", '"web" is no range'),
        (pool(exclude=["192.0.2.1/30"]), "spec.exclude[0]", "has host bits set"),
        (pool(priority=-1), "spec.priority", "greater than or equal to 0"),
        (pool(cooldownSeconds=-1), "spec.cooldownSeconds", "greater than or equal to 0"),
        (pool(maxPerNamespace=-1), "spec.maxPerNamespace", "greater than or equal to 0"),
        (pool(groups=["edge"]), "spec.groups[0]", '"edge" is no name of a KeepalivedGroup'),
        (
            pool(reservations=[{"address": "192.0.2.3", "service": "x"}]),
            "spec.reservations[0].service",
            '"x" is no name of a Service; want namespace/name',
        ),
        (pool(reservations=[{"address": "x", "service": "a/b"}]), "spec.reservations[0].address", "one IPv4 or IPv6"),
        ({"apiVersion": POOL_API, "kind": "VIPPool", "metadata": {"name": "bare"}}, "spec", "Required value"),
    ],
    ids=lambda value: json.dumps(value.get("spec")) if isinstance(value, dict) else "",
)
def test_bad_shapes_are_refused(server: ControlPlane, subject: manifests.Object, field: str, message: str) -> None:
    """The refusal has the field and the remedy."""
    refused = refusal(server, subject)
    assert f"{field}: " in refused
    assert message in refused


@pytest.mark.parametrize("case", [case for case in refusals.cases() if case.by == "crd"], ids=str)
def test_the_refusal_table_holds_without_kavip(server: ControlPlane, case: Case) -> None:
    """The API server alone refuses these cases, and accepts their corrections."""
    refused = refusal(server, _at_home(case.object))
    assert all(f"{field}: " in refused and _own_words(message) in refused for field, message in case.causes), refused
    assert refusal(server, _at_home(case.passes)) == ""


def _own_words(message: str) -> str:
    """*message* without the value that the API server adds before it; Kubernetes 1.30 adds a type."""
    return re.sub(r'^(Duplicate value): .*|^Invalid value: ("[^"]*": |-?[0-9]+: )?', r"\1", message)


def _at_home(manifest: Manifest) -> manifests.Object:
    """*manifest* in a namespace that every cluster has."""
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "namespace": "default"} if "namespace" in metadata else metadata}


@given(st.lists(ranges(), min_size=256, max_size=256, unique=True))
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
def test_valid_ranges_are_accepted(server: ControlPlane, texts: list[str]) -> None:
    """No rule of the CRD refuses a range that kavip accepts, in any notation."""
    usable = [text for text in texts if not any(parse_range(text).overlaps(span) for span, _ in UNUSABLE)]
    assert refusal(server, pool(exclude=usable)) == ""


def test_a_group_has_a_spec_and_a_name_that_fits_a_label(server: ControlPlane) -> None:
    """A group without a spec, or with a name over 63 characters, is refused."""
    metadata = {"name": "n" * 64, "namespace": "default"}
    bare = {key: value for key, value in group().items() if key != "spec"}
    assert "is missing; want at least interface" in refusal(server, bare)
    assert "want at most 63 characters" in refusal(server, {**new(), "metadata": metadata})
    assert refusal(server, {**new(), "metadata": {**metadata, "name": "n" * 63}}) == ""


@pytest.mark.parametrize(
    "subject",
    [
        new(
            interfaceFromIP="2001:db8:1234:1234:1234:1234:192.100.100.100",
            blacklistRouterIDs=list(range(1, 256)),
            virtualIPs=[{"address": f"2001:db8:1234:1234:1234:1234:1234:{i:04x}/128"} for i in range(64)],
            checks=[check(f"c{i}", url=f"https://{'x' * 2000}/") for i in range(16)],
        ),
        pool(
            *(
                f"2001:db8:1234:1234:1234:{i:04x}::1 - 2001:db8:1234:1234:1234:{i:04x}:192.100.100.100"
                for i in range(128)
            ),
            *(f"198.{i}.100.100 - 198.{i}.200.200" for i in range(64)),
            *(f"200.{i}.100.0/24" for i in range(64)),
            exclude=[f"200.{i}.100.{j}" for i in range(64) for j in (101, 102, 103, 104)],
            groups=[f"{'n' * 63}/{'g' * 240}{i}" for i in range(64)],
            reservations=[
                {"address": f"198.{i}.101.{j}", "service": f"{'n' * 63}/{'s' * 250}"}
                for i in range(64)
                for j in range(8)
            ],
        ),
    ],
    ids=["group", "pool"],
)
def test_the_largest_objects_stay_inside_the_budget(server: ControlPlane, subject: manifests.Object) -> None:
    """No rule exceeds the API server's cost limit when every list is full."""
    assert refusal(server, subject) == ""


@pytest.mark.parametrize("field", ["spec.colour", "status.colour"])
def test_unknown_fields_are_named(server: ControlPlane, field: str) -> None:
    """kubectl's strict validation accepts every field."""
    part, _, name = field.partition(".")
    refused = refusal(server, {**pool(), part: {**pool().get(part, {}), name: "red"}})
    assert f'unknown field "{field}"' in refused


@pytest.fixture
def stored(server: ControlPlane) -> Iterator[str]:
    """A stored pool, without a controller."""
    subject = {**pool(), "metadata": {"name": "crd-shape"}}
    server.kubectl("create", "--filename=-", input=json.dumps(subject))
    yield "crd-shape"
    server.kubectl("delete", "vippool", "crd-shape", "--ignore-not-found")


def test_a_new_pool_has_pending_conditions(server: ControlPlane, stored: str) -> None:
    """Accepted and Ready are Unknown with reason Pending."""
    read = json.loads(server.kubectl("get", "vippool", stored, "--output=json").stdout)
    conditions = {each["type"]: (each["status"], each["reason"]) for each in read["status"]["conditions"]}
    assert conditions == {"Accepted": ("Unknown", "Pending"), "Ready": ("Unknown", "Pending")}


def test_status_is_a_subresource(server: ControlPlane, stored: str) -> None:
    """A write of status cannot change the spec, and the other way round."""
    change = {"spec": {"priority": 7}, "status": {"ipv4": {"total": 16, "assigned": 3, "available": 13}}}
    patch = ["--type=merge", f"--patch={json.dumps(change)}"]
    server.kubectl("patch", "vippool", stored, "--subresource=status", *patch)
    read = json.loads(server.kubectl("get", "vippool", stored, "--output=json").stdout)
    assert read["spec"]["priority"] == 100
    assert read["status"]["ipv4"]["assigned"] == 3


def test_kubectl_prints_what_matters(server: ControlPlane, stored: str) -> None:
    """The short name works, and the printer columns exist."""
    header, line = server.kubectl("get", "vipp", stored).stdout.splitlines()
    assert " ".join(header.split()) == ("NAME ADDRESSES AUTO IPV4-USED IPV4-FREE IPV6-USED ACCEPTED READY REASON AGE")
    assert line.split()[:3] == [stored, '["192.0.2.0/28"]', "true"]


def test_kubectl_shows_that_a_group_is_invalid(server: ControlPlane) -> None:
    """A group that is not accepted says so in the table, although its nodes run what they ran before."""
    metadata = {"name": "crd-columns", "namespace": "default"}
    subject = {"apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "KeepalivedGroup", "metadata": metadata}
    server.kubectl("create", "--filename=-", input=json.dumps({**subject, "spec": {"interface": "eth0"}}))
    found = (("Accepted", "False", "Invalid"), ("Programmed", "True", "Programmed"), ("Ready", "True", "Ready"))
    times = {"lastTransitionTime": "2026-11-23T09:00:00Z", "message": ""}
    conditions = [{"type": each, "status": status, "reason": reason, **times} for each, status, reason in found]
    patch = ("--type=merge", f"--patch={json.dumps({'status': {'conditions': conditions}})}")
    server.kubectl("patch", "keepalivedgroup", "crd-columns", "--subresource=status", *patch)
    header, line = server.kubectl("get", "keepalivedgroup", "crd-columns").stdout.splitlines()
    assert header.split() == ["NAME", "INTERFACE", "NODES", "CURRENT", "ACCEPTED", "PROGRAMMED", "READY", "AGE"]
    assert line.split()[-4:-1] == ["Invalid", "True", "True"]
    server.kubectl("delete", "keepalivedgroup", "crd-columns")
