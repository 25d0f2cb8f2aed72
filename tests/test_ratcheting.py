"""Objects older than the CRD rules on a real API server: which parts an edit may keep, and which it may not touch."""

import json
from collections.abc import Iterator

import pytest

from hack.testbed.controlplane import ControlPlane
from hack.testbed.process import wait_for
from tests.support import crds, manifests, openapi
from tests.support.crds import GROUP_API, group, new, pool, refusal

pytestmark = pytest.mark.apiserver

RULES = ("x-kubernetes-validations", "maxLength", "maxItems", "multipleOf")
ELSEWHERE = {"metadata": {"labels": {"a": "b"}}}
OLD: dict[str, dict[str, tuple[manifests.Object, str]]] = {
    "bare": {
        "label": (ELSEWHERE, ""),
        "mend": ({"spec": {"interface": "eth0"}}, ""),
        "worsen": ({"spec": {"unicastEnabled": True}}, "spec.interface: Required value"),
    },
    "names": {
        "label": (ELSEWHERE, ""),
        "other field": ({"spec": {"unicastEnabled": True, "vrrpVersion": 2}}, ""),
        "touch": ({"spec": {"interface": "lo0lo0lo0lo0lo0lo0"}}, "is no interface name"),
        "touch the other": ({"spec": {"blacklistRouterIDs": [0, 7]}}, "0 is no virtual router ID"),
        "mend": ({"spec": {"interface": "eth0", "blacklistRouterIDs": [7]}}, ""),
    },
    "timing": {
        "label": (ELSEWHERE, ""),
        "other field": ({"spec": {"unicastEnabled": False}}, ""),
        "touch": ({"spec": {"advertIntervalMilliseconds": 300}}, "300: want whole seconds with version 2"),
        "touch the other": ({"spec": {"preemptDelaySeconds": 9}}, "9: noPreempt and a delay exclude each other"),
    },
    "slow": {
        "other field": ({"spec": {"unicastEnabled": False}}, ""),
        "touch": ({"spec": {"vrrpVersion": None}}, "50000: want"),
    },
    "secret": {
        "other field": ({"spec": {"segment": "rack"}}, ""),
        "mend": ({"spec": {"vrrpVersion": 2}}, ""),
    },
    "shared": {
        "other field": ({"spec": {"segment": "rack"}}, ""),
        "touch": ({"spec": {"instances": {"count": 250}}}, "250 is more than the 249"),
        "touch the other": ({"spec": {"blacklistRouterIDs": [1, 2, 3, 4, 5, 6, 7]}}, "more than the 248"),
    },
    "wide": {
        "label": (ELSEWHERE, ""),
        "other field": ({"spec": {"priority": 7}}, ""),
        "touch": ({"spec": {"addresses": ["192.0.2.1/24"]}}, "has host bits set"),
    },
}
"""Objects from before the rules, by name: edits of them, and the messages for them."""
FOUND: list[manifests.Object] = [
    {"apiVersion": GROUP_API, "kind": "KeepalivedGroup", "metadata": {"name": "bare"}},
    group(interface="an interface that no kernel would take", blacklistRouterIDs=[-5, 0, 999], interfaceFromIP="web"),
    new(vrrpVersion=2, advertIntervalMilliseconds=200, noPreempt=True, preemptDelaySeconds=3),
    new(vrrpVersion=3, advertIntervalMilliseconds=50000),
    new(vrrpVersion=3, passwordAuth={"secretRef": {"name": "vrrp"}}),
    new(instances={"mode": "Shared", "count": 255}, blacklistRouterIDs=[1, 2, 3, 4, 5, 6]),
    pool("0.0.0.0/0", "192.0.2.1/24", "::ffff:192.0.2.1"),
]


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> ControlPlane:
    """An API server with both kinds."""
    crds.install(control_plane)
    return control_plane


@pytest.fixture(scope="module")
def found(server: ControlPlane) -> Iterator[list[manifests.Object]]:
    """Objects that were stored while the CRDs had no rules."""
    strict = [manifests.parsed(path.read_text())[0] for path in manifests.CRDS]
    probes = [group(interface="lo"), pool("lo")]
    objects = [
        {**each, "metadata": {"name": name, "namespace": "default"} if each["kind"] != "VIPPool" else {"name": name}}
        for name, each in zip(OLD, FOUND, strict=True)
    ]
    try:
        _define(server, [openapi.bare(each, *RULES) for each in strict])
        wait_for(
            "the rules are gone", lambda: not any(refusal(server, each) for each in probes), timeout=60, interval=0.2
        )
        for each in objects:
            server.kubectl("create", "--filename=-", input=json.dumps(each))
        _define(server, strict)
        wait_for("the rules are back", lambda: all(refusal(server, each) for each in probes), timeout=60, interval=0.2)
        yield objects
    finally:
        _define(server, strict)
        for each in objects:
            server.kubectl("delete", each["kind"], each["metadata"]["name"], "--ignore-not-found", check=False)


def _define(server: ControlPlane, definitions: list[manifests.Object]) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions})
    server.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", input=body)


def test_an_old_violation_may_stay(server: ControlPlane, found: list[manifests.Object]) -> None:
    """An edit may keep an old violation, but not touch it."""
    for old in found:
        kind, name = old["kind"], old["metadata"]["name"]
        edits = OLD[name]
        for what, (change, message) in edits.items():
            patch = ["patch", kind, name, "--type=merge", "--dry-run=server", f"--patch={json.dumps(change)}"]
            done = server.kubectl(*patch, check=False)
            assert bool(done.returncode) == bool(message), (name, what, done.stderr)
            assert message in done.stderr, (name, what)
