"""
The audit policy of docs/examples in a real API server, with the flags of docs/howto/audit.md, gives what the page says.

The commands run as they stand in the page; only the path of the log is another one. kavip runs with the names of the
chart's accounts, and with all rights: tests/test_rights.py compares the rights.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.testbed import runs
from hack.testbed.controlplane import ControlPlane
from hack.testbed.place import run
from hack.testbed.programs import Programs
from tests.app.conftest import Installation, a_group, a_pool, a_service, prepare, wait_for
from tests.support import manifests

pytestmark = pytest.mark.apiserver

POLICY = manifests.ROOT / "docs" / "examples" / "audit-policy.yaml"
PAGE = manifests.ROOT / "docs" / "howto" / "audit.md"
LOG = "/var/log/kubernetes/audit.log"
ACCOUNTS = tuple(f"system:serviceaccount:kavip:{name}" for name in ("kavip-webhook", "kavip-controller", "kavip"))
CONTROLLER, COMBINED = ACCOUNTS[1:]
ADMINS = "system:masters"


def page_flags(state: Path) -> list[str]:
    """The flags that the page gives to the API server, with the paths of this machine."""
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    paths = {"/etc/kubernetes/audit-policy.yaml": str(POLICY), LOG: str(state / "audit.log")}
    given = yaml.safe_load(block)["apiServer"]["extraArgs"]
    return [f"--{each['name']}={paths.get(each['value'], each['value'])}" for each in given]


@dataclass(slots=True)
class Site:
    """An API server with the policy, and kavip, which has served a Service."""

    installation: Installation
    log: Path

    def answer(self, question: str) -> list[list[str]]:
        """What the commands below the heading *question* print: the columns of each line, without the time."""
        section = PAGE.read_text().split(f"### {question}\n")[1].split("\n##")[0]
        commands = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
        lines = [
            line for each in commands for line in run(["sh", "-c", each.replace(LOG, str(self.log))]).stdout.split("\n")
        ]
        return [line.split("  ")[1:] for line in lines if line]

    def recorded(self) -> list[dict[str, Any]]:
        """All events of the log."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture(scope="module")
def site(programs: Programs) -> Iterator[Site]:
    """
    First `kavip run` with the account of the combined topology, then `kavip controller` with its own one.

    alice edits a group, a tenant asks for what kavip refuses, and somebody uses the token of the webhook.
    """
    with runs.temporary() as state, ControlPlane(programs, state, apiserver_flags=page_flags(state)) as plane:
        found = Installation(prepare(plane))
        try:
            replica = found.start(f"--kubeconfig={plane.user(COMBINED, ADMINS)}", "--lease-seconds=6")
            found.apply_and_wait(a_pool("blue", "198.51.100.0/28"), a_group("edge", default=True))
            found.apply(a_service("web"))
            wait_for("web has an address", lambda: found.addresses("web"))
            alice = plane.user("alice", ADMINS)
            changed = json.dumps({"spec": {"interface": "eth1"}})
            edge = ("keepalivedgroup", "edge", "--namespace=lb", "--type=merge", f"--patch={changed}")
            plane.kubectl("patch", *edge, kubeconfig=alice)
            plane.kubectl("patch", *edge, "--dry-run=server", kubeconfig=alice)
            label = json.dumps([{"op": "add", "path": "/metadata/labels/tier", "value": "edge"}])
            plane.kubectl("patch", *edge[:3], "--type=json", f"--patch={label}", kubeconfig=alice)
            configmap = ("configmap", "edge", "--namespace=lb", "--type=merge", '--patch={"data":{"more":""}}')
            wait_for("the group has a configuration", lambda: found.get("configmap", "edge", "-n", "lb"))
            plane.kubectl("patch", *configmap, kubeconfig=alice)
            bad = a_service("bad", annotations={"kavip.io/pool": "absent"})
            bob = plane.user("bob", ADMINS)
            plane.kubectl("create", "--filename=-", input=json.dumps(bad), kubeconfig=bob, check=False)
            stolen = plane.user(ACCOUNTS[0])
            plane.kubectl("get", "secrets", "--namespace=kube-system", kubeconfig=stolen, check=False)
            replica.stop()
            last = found.start(f"--kubeconfig={plane.user(CONTROLLER, ADMINS)}", "--lease-seconds=6", webhook=False)
            plane.kubectl(
                "patch", "service", "web", "--namespace=shop", "--type=merge", '--patch={"spec":{"type":"ClusterIP"}}'
            )
            wait_for("web is not managed", lambda: not found.condition("web"))
            last.stop()  # so that nothing writes to the log while it is read
            yield Site(found, state / "audit.log")
        finally:
            found.close()


def test_who_changed_this_group(site: Site) -> None:
    """Its creation, alice's edits and a JSON patch, with what they changed; no dry run, nothing of kavip."""
    created, changed, listed = site.answer("Who changed this group?")
    assert created[:2] == ["admin", "create"]
    assert json.loads(created[2])["spec"]["interface"] == "eth0"
    assert changed == ["alice", "patch", '{"spec":{"interface":"eth1"}}']
    assert listed[:2] == ["alice", "patch"]
    assert json.loads(listed[2])[0]["path"] == "/metadata/labels/tier"


def test_who_changed_the_webhook_configurations(site: Site) -> None:
    """Each write has its body, which the account of kavip sent here; no read is listed."""
    lines = site.answer("Who changed kavip's webhook configurations?")
    kinds = {f"{each}webhookconfigurations" for each in ("mutating", "validating")}
    assert {(user, resource) for user, _, resource, _ in lines} == {(COMBINED, each) for each in kinds}
    assert all(json.loads(body)["webhooks"] for _, _, _, body in lines)


def test_who_changed_what_a_group_runs(site: Site) -> None:
    """Alice's edit of the ConfigMap, and nothing of kavip."""
    (configured,) = site.answer("Who changed what a group runs?")
    assert configured[:2] == ["alice", "patch"]
    assert configured[2].startswith("/api/v1/namespaces/lb/configmaps/edge?")


def test_what_kavip_wrote_to_this_service(site: Site) -> None:
    """Each patch with its body and the account: one assigned the address, the other removed its condition."""
    written = site.answer("What did kavip write to this Service?")
    assert {(user, verb) for user, verb, _ in written} == {(COMBINED, "patch"), (CONTROLLER, "patch")}
    first, last = (json.loads(body)["status"] for _, _, body in (written[0], written[-1]))
    assert first["loadBalancer"]["ingress"][0]["ip"] == "198.51.100.0"
    assert {"$patch": "delete", "type": "kavip.io/AddressAssigned"} in last["conditions"]


def test_what_was_refused(site: Site) -> None:
    """The stolen token, and the Service with a pool that does not exist; nothing else."""
    answers = site.answer("Was anything refused?")
    stolen, refused = (each for each in answers if each[0] != "admin")  # the fixture asks until the webhook answers
    assert stolen[:3] == [ACCOUNTS[0], "list", "/api/v1/namespaces/kube-system/secrets?limit=500"]
    assert "cannot list resource" in stolen[3]
    assert refused[:2] == ["bob", "create"]
    assert 'pool "absent" does not exist' in refused[3]


def test_no_secret_and_no_repetition_is_recorded(site: Site) -> None:
    """No body of a Secret, no response body, no lease, no Event, no watch but of Secrets, no absent kind."""
    seen = site.recorded()
    assert [each["user"]["username"] for each in seen if each["objectRef"]["resource"] == "secrets"].count(COMBINED) > 1
    assert not [each for each in seen if each["objectRef"]["resource"] == "secrets" and "requestObject" in each]
    assert not [each for each in seen if "responseObject" in each]
    assert not [each for each in seen if each["objectRef"]["resource"] == "leases" and each["verb"] != "list"]
    assert not {each["objectRef"]["resource"] for each in seen} & {"events", "subjectaccessreviews", "tokenreviews"}
    assert {each["objectRef"]["resource"] for each in seen if each["verb"] == "watch"} <= {"secrets"}
    assert not [each for each in seen if each["verb"] == "list" and each["responseStatus"]["code"] == 404]
    assert len({each["auditID"] for each in seen}) == len(seen)
