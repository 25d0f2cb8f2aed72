"""Validation of a KeepalivedGroup by itself."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.meta import Metadata
from kavip.vrrp import groupspec, timing

PASSWORD = {"passwordAuth": {"secretRef": {"name": "vrrp"}}}


def group(**spec: Any) -> KeepalivedGroup:
    """A group with fields as a user writes them."""
    return KeepalivedGroup(spec=msgspec.convert({"interface": "eth0", **spec}, GroupSpec))


FINE: list[dict[str, Any]] = [
    {},
    {"interface": "bond0.100", "vrrpInterface": "br-ex", "interfaceFromIP": "192.0.2.1"},
    {"interfaceFromIP": "2001:db8::1"},
    {"blacklistRouterIDs": [1, 255]},
    {"nodeSelector": {"node-role.kubernetes.io/worker": ""}},
    {"virtualIPs": [{"address": "192.0.2.5/24"}, {"address": "2001:db8::5", "interface": "eth1"}]},
    {"checks": [{"name": "a", "url": "kubelet"}, {"name": "b", "url": "https://[::1]:6443/readyz"}]},
    {"checks": [{"name": "a", "url": "kubelet", "onFailure": "LowerPriority", "weight": 40}]},
    {"noPreempt": True, "preemptDelaySeconds": 0},
    {"vrrpVersion": 3, "advertIntervalMilliseconds": 40950},
    {"vrrpVersion": 3, "advertIntervalMilliseconds": 10},
    {"vrrpVersion": 2, "advertIntervalMilliseconds": 2000, **PASSWORD},
    {"verbatimConfig": {"vrrp_version": "3"}, "advertIntervalMilliseconds": 100},
    {"verbatimConfig": {"startup_script": "/bin/true"}, "allowScripts": True},
    {"openshiftClusterName": "ostest"},
    {"instances": {"mode": "Shared", "count": 254}, "blacklistRouterIDs": [1]},
    {"allowedNamespaces": {}},
    {"allowedNamespaces": {"matchExpressions": [{"key": "a/b", "operator": "In", "values": ["x", ""]}]}},
    {"allowVerbatim": ["promote_secondaries", "virtual_routes", "track_interface"]},
    {"passwordAuth": {"secretRef": {}}, "vrrpVersion": 3},
    {"passwordAuth": {"secretRef": {"name": "vrrp.edge-1"}, "secretKey": "Pass_word.1"}, "vrrpVersion": 2},
    {"daemonsetPodAnnotations": {"prometheus.io/Scrape": "a b", "Plain_1.x": "", f"{'a' * 60}.io/{'b' * 63}": "x"}},
    {"daemonsetPodPriorityClassName": "system-node-critical"},
]

WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"interface": "lo"}, "spec.interface", "not lo"),
    ({"interface": ""}, "spec.interface", "1 to 15"),
    ({"interface": "abcdefghijklmnop"}, "spec.interface", "1 to 15"),
    ({"interface": "eth0;x"}, "spec.interface", "1 to 15"),
    ({"vrrpInterface": "e#1"}, "spec.vrrpInterface", "1 to 15"),
    ({"interfaceFromIP": "192.0.2.300"}, "spec.interfaceFromIP", "want one IPv4 or IPv6"),
    ({"interfaceFromIP": "fe80::1%eth0"}, "spec.interfaceFromIP", "without a zone"),
    ({"nodeSelector": {"a b": "x"}}, "spec.nodeSelector[a b]", "key of a label"),
    ({"blacklistRouterIDs": [1, 2, 256]}, "spec.blacklistRouterIDs[2]", "1 to 255"),
    ({"blacklistRouterIDs": [0]}, "spec.blacklistRouterIDs[0]", "1 to 255"),
    ({"blacklistRouterIDs": [7, 8, 7]}, "spec.blacklistRouterIDs[2]", "already at blacklistRouterIDs[0]"),
    ({"verbatimConfig": {"vrrp_iptables": "x"}}, "spec.verbatimConfig[vrrp_iptables]", "accept them; remove it"),
    ({"verbatimConfig": {"lvs_id": "x"}}, "spec.verbatimConfig[lvs_id]", "not a keyword"),
    ({"verbatimConfig": {"track_src_ip": ""}}, "spec.verbatimConfig[track_src_ip]", "verbatimconfig annotation"),
    ({"verbatimConfig": {"startup_script": "/x"}}, "spec.verbatimConfig[startup_script]", "allowScripts"),
    ({"virtualIPs": [{"address": "192.0.2.0/24"}]}, "spec.virtualIPs[0].address", "network or broadcast"),
    (
        {"virtualIPs": [{"address": "192.0.2.5/24"}, {"address": "192.0.2.5"}]},
        "spec.virtualIPs[1].address",
        "already at virtualIPs[0]",
    ),
    ({"virtualIPs": [{"address": "192.0.2.5", "routerID": 0}]}, "spec.virtualIPs[0].routerID", "from 1 to 255"),
    (
        {"virtualIPs": [{"address": "192.0.2.5", "routerID": 9}], "blacklistRouterIDs": [9]},
        "spec.virtualIPs[0].routerID",
        "blacklistRouterIDs has it",
    ),
    (
        {"virtualIPs": [{"address": "192.0.2.5", "routerID": 134}], "openshiftClusterName": "ocp"},
        "spec.virtualIPs[0].routerID",
        "OpenShift cluster ocp uses it",
    ),
    ({"virtualIPs": [{"address": "192.0.2.5", "interface": "lo"}]}, "spec.virtualIPs[0].interface", "not lo"),
    ({"virtualIPs": [{"address": "::ffff:192.0.2.5"}]}, "spec.virtualIPs[0].address", "write 192.0.2.5"),
    ({"virtualIPs": [{"address": "192.0.2.5%eth0"}]}, "spec.virtualIPs[0].address", "want an address"),
    ({"virtualIPs": [{"address": "ff02::1"}]}, "spec.virtualIPs[0].address", "want a unicast address"),
    ({"checks": [{"name": "", "url": "kubelet"}]}, "spec.checks[0].name", "want a name"),
    ({"checks": [{"name": "Web", "url": "kubelet"}]}, "spec.checks[0].name", "want a name"),
    ({"checks": [{"name": "a", "url": "kubelet", "intervalSeconds": 3601}]}, "spec.checks[0].intervalSeconds", "3600"),
    (
        {"checks": [{"name": "a", "url": "kubelet"}, {"name": "a", "url": "kubelet"}]},
        "spec.checks[1].name",
        "already at checks[0]",
    ),
    ({"checks": [{"name": "a", "url": "ftp://x"}]}, "spec.checks[0].url", "want kubelet or kube-apiserver, or http(s)"),
    ({"checks": [{"name": "a", "url": "https://a:b@x/"}]}, "spec.checks[0].url", "without a user or password"),
    (
        {"checks": [{"name": "a", "url": "http://x/", "caFrom": {"name": "ca"}}]},
        "spec.checks[0].caFrom",
        "only an https URL",
    ),
    (
        {"checks": [{"name": "a", "url": "kube-apiserver", "caFrom": {"name": "ca"}}]},
        "spec.checks[0].caFrom",
        "is known",
    ),
    (
        {"checks": [{"name": "a", "url": "kubelet", "intervalSeconds": 2, "timeoutSeconds": 3}]},
        "spec.checks[0].timeoutSeconds",
        "at most intervalSeconds, 2",
    ),
    ({"checks": [{"name": "a", "url": "kubelet", "failAfter": 0}]}, "spec.checks[0].failAfter", "1 to 100"),
    ({"checks": [{"name": "a", "url": "kubelet", "onFailure": "Die"}]}, "spec.checks[0].onFailure", "Fault or"),
    (
        {"checks": [{"name": "a", "url": "kubelet", "expectedStatus": 100}]},
        "spec.checks[0].expectedStatus",
        "200 to 599",
    ),
    ({"checks": [{"name": "a", "url": "kubelet", "weight": 5}]}, "spec.checks[0].weight", "want onFailure"),
    (
        {"checks": [{"name": "a", "url": "kubelet", "onFailure": "LowerPriority", "weight": 254}]},
        "spec.checks[0].weight",
        "1 to 253",
    ),
    (
        {"checks": [{"name": "a", "url": "https://x/", "caFrom": {"name": "My CA"}}]},
        "spec.checks[0].caFrom.name",
        "name of an object",
    ),
    (
        {"checks": [{"name": "a", "url": "https://x/", "caFrom": {"name": "ca", "key": "../ca.crt"}}]},
        "spec.checks[0].caFrom.key",
        "a key of its data",
    ),
    (
        {"passwordAuth": {"secretRef": {"name": "My Secret"}}, "vrrpVersion": 2},
        "spec.passwordAuth.secretRef.name",
        "name of an object",
    ),
    (
        {"passwordAuth": {"secretRef": {"name": "vrrp"}, "secretKey": "a/b"}, "vrrpVersion": 2},
        "spec.passwordAuth.secretKey",
        "a key of its data",
    ),
    (
        {"passwordAuth": {"secretRef": {"name": "vrrp"}, "secretKey": "..a"}, "vrrpVersion": 2},
        "spec.passwordAuth.secretKey",
        "a key of its data",
    ),
    ({"daemonsetPodPriorityClassName": "System Node"}, "spec.daemonsetPodPriorityClassName", "name of an object"),
    ({"daemonsetPodPriorityClassName": "a..b"}, "spec.daemonsetPodPriorityClassName", "name of an object"),
    ({"daemonsetPodAnnotations": {"a b": "x"}}, "spec.daemonsetPodAnnotations[a b]", "key of an annotation"),
    ({"daemonsetPodAnnotations": {"/a": "x"}}, "spec.daemonsetPodAnnotations[/a]", "key of an annotation"),
    ({"daemonsetPodAnnotations": {"a" * 64: "x"}}, f"spec.daemonsetPodAnnotations[{'a' * 64}]", "key of an annotation"),
    ({"noPreempt": True, "preemptDelaySeconds": 5}, "spec.preemptDelaySeconds", "want one of the two"),
    (
        {"checks": [{"name": "a", "url": "kubelet", "onFailure": "LowerPriority", "weight": -4}]},
        "spec.checks[0].weight",
        "1 to 253",
    ),
    ({"preemptDelaySeconds": 1001}, "spec.preemptDelaySeconds", "0 to 1000"),
    ({"segment": "Rack 7"}, "spec.segment", "want a name"),
    ({"metricsPort": 0}, "spec.metricsPort", "want 1 to 65535"),
    ({"metricsPort": 65536}, "spec.metricsPort", "want 1 to 65535"),
    ({"vrrpVersion": 4}, "spec.vrrpVersion", "2 or 3"),
    ({"vrrpVersion": 3, **PASSWORD}, "spec.passwordAuth", "version 3 has no passwords"),
    ({"advertIntervalMilliseconds": 200}, "spec.advertIntervalMilliseconds", "vrrpVersion: 3 allows shorter intervals"),
    ({"vrrpVersion": 2, "advertIntervalMilliseconds": 1500}, "spec.advertIntervalMilliseconds", "whole seconds"),
    ({"vrrpVersion": 3, "advertIntervalMilliseconds": 205}, "spec.advertIntervalMilliseconds", "multiples of 10"),
    ({"vrrpVersion": 3, "advertIntervalMilliseconds": 40960}, "spec.advertIntervalMilliseconds", "up to 40950"),
    ({"openshiftClusterName": "Not A Name"}, "spec.openshiftClusterName", "name of an OpenShift cluster"),
    ({"instances": {"mode": "shared"}}, "spec.instances.mode", "PerService or Shared"),
    ({"instances": {"mode": "Shared", "count": 0}}, "spec.instances.count", "1 to 255"),
    (
        {"instances": {"mode": "Shared", "count": 255}, "blacklistRouterIDs": [9]},
        "spec.instances.count",
        "want at most 254, because blacklistRouterIDs",
    ),
    (
        {"allowedNamespaces": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
        "spec.allowedNamespaces.matchExpressions[0].operator",
        "want In, NotIn",
    ),
    (
        {"allowedNamespaces": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        "spec.allowedNamespaces.matchExpressions[0].values",
        "wants values",
    ),
    (
        {"allowedNamespaces": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}},
        "spec.allowedNamespaces.matchExpressions[0].values",
        "takes no values",
    ),
    (
        {"allowedNamespaces": {"matchLabels": {"team": "a b"}}},
        "spec.allowedNamespaces.matchLabels[team]",
        "value of a label",
    ),
    ({"allowVerbatim": ["accept", "notify_master"]}, "spec.allowVerbatim[1]", "runs programs"),
    ({"allowVerbatim": ["interface"]}, "spec.allowVerbatim[0]", "kavip writes"),
    ({"allowVerbatim": ["Bad Word"]}, "spec.allowVerbatim[0]", "not a keyword of keepalived's"),
    ({"allowVerbatim": ["use_vmac"]}, "spec.allowVerbatim[0]", "interfaces that kavip does not watch"),
    ({"allowVerbatim": ["promote_secondary"]}, "spec.allowVerbatim[0]", "did you mean promote_secondaries?"),
]


@pytest.mark.parametrize("spec", FINE, ids=str)
def test_valid_groups(spec: dict[str, Any]) -> None:
    """A valid group is accepted."""
    assert groupspec.check_group(group(**spec)) == ()


@pytest.mark.parametrize(("spec", "field", "remedy"), WRONG, ids=[f"{field}-{remedy}" for _, field, remedy in WRONG])
def test_invalid_fields(spec: dict[str, Any], field: str, remedy: str) -> None:
    """An invalid field gives one refusal, with the path of the field, its value and the remedy."""
    (found,) = groupspec.check_group(group(**spec))
    assert found.field == field
    assert found.message.startswith(f"{field}: ")
    assert remedy in found.message


def test_a_name_must_fit_a_label() -> None:
    """The name of the group is a label value of all its objects."""
    named = [KeepalivedGroup(metadata=Metadata(name="n" * length), spec=group().spec) for length in (63, 64)]
    assert [[finding.field for finding in groupspec.check_group(each)] for each in named] == [[], ["metadata.name"]]


def test_all_findings() -> None:
    """All errors are reported, in the order of the fields."""
    found = groupspec.check_group(group(interface="lo", blacklistRouterIDs=[0, 0], vrrpVersion=9))
    assert [finding.field for finding in found] == [
        "spec.interface",
        "spec.blacklistRouterIDs[0]",
        "spec.blacklistRouterIDs[1]",
        "spec.vrrpVersion",
    ]


NEW = {"unicastEnabled": True, "segment": "default"}
FAST = {"vrrpVersion": 3, "advertIntervalMilliseconds": 200}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {**NEW, **FAST}),
        ({"unicastEnabled": False}, {"segment": "default", **FAST}),
        ({"segment": "rack-7"}, {"unicastEnabled": True, **FAST}),
        (PASSWORD, NEW),
        ({"vrrpVersion": 2}, NEW),
        ({"vrrpVersion": 3}, {**NEW, "advertIntervalMilliseconds": 200}),
        ({"advertIntervalMilliseconds": 500}, {**NEW, "vrrpVersion": 3}),
        ({"vrrpVersion": 2, "advertIntervalMilliseconds": 3000}, NEW),
        ({"verbatimConfig": {"vrrp_version": "2"}}, NEW),
        ({"verbatimConfig": {"vrrp_version": "3"}}, {**NEW, "advertIntervalMilliseconds": 200}),
        ({"passwordAuth": {"secretRef": {}}}, {**NEW, **FAST}),
    ],
)
def test_defaults(spec: dict[str, Any], expected: dict[str, Any]) -> None:
    """A new group gets defaults for fields that it does not set, and none that contradicts another field."""
    found = groupspec.defaults(group(**spec))
    assert found == expected
    completed = group(**{**spec, **found})
    assert groupspec.check_group(completed) == ()
    assert groupspec.defaults(completed) == {}


@pytest.mark.parametrize(
    ("spec", "family", "expected"),
    [
        ({}, 4, (2, "1")),
        ({}, 6, (3, "1")),
        ({"vrrpVersion": 3, "advertIntervalMilliseconds": 200}, 4, (3, "0.2")),
        ({"vrrpVersion": 3, "advertIntervalMilliseconds": 1050}, 4, (3, "1.05")),
        ({"vrrpVersion": 2, "advertIntervalMilliseconds": 3000}, 6, (3, "3")),
        ({"verbatimConfig": {"vrrp_version": "3"}}, 4, (3, "1")),
        ({"advertIntervalMilliseconds": 200}, 4, (2, "1")),  # bypassed admission
        ({"vrrpVersion": 2, "advertIntervalMilliseconds": 900000}, 6, (3, "40.95")),
    ],
)
def test_timing(spec: dict[str, Any], family: int, expected: tuple[int, str]) -> None:
    """Absent fields mean version 2 and one second; IPv6 always has version 3."""
    found = timing.timing_of(group(**spec).spec, family)
    assert (found.version, found.seconds) == expected


@given(st.integers(-10, 10**7), st.sampled_from([2, 3, None, 9]), st.sampled_from([4, 6]))
def test_timing_is_always_possible(interval: int, version: int | None, family: int) -> None:
    """keepalived can run any interval, even one that bypassed admission."""
    found = timing.timing_of(group(vrrpVersion=version, advertIntervalMilliseconds=interval).spec, family)
    if found.version == 3:
        assert 10 <= found.milliseconds <= 40_950
        assert found.milliseconds % 10 == 0
    else:
        assert 1000 <= found.milliseconds <= 255_000
        assert found.milliseconds % 1000 == 0
