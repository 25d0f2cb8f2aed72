"""Every check of ``kavip doctor``: a sound cluster has no finding, and each broken thing has its own."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kavip.api.agent import KeepalivedReport, NodeProblem, ProblemCode
from kavip.api.group import KeepalivedGroup
from kavip.api.installation import Heartbeat
from kavip.cli.views.doctor.checks import CHECKS, MOST, DoctorReport, diagnose
from kavip.cli.views.doctor.inspection import DryRun, Gap, Right, Source
from kavip.cli.views.doctor.nodes import LATE, SKEW, contested
from kavip.cli.views.doctor.programs import needed_rights
from kavip.snapshot import Snapshot
from tests.cli.views.doctor.soundcluster import (
    NOW,
    agent,
    bundle,
    colliding,
    config,
    configurations,
    definitions,
    deployment,
    heartbeat,
    noting,
    objects,
    sound,
    speaker,
    workload,
)
from tests.reconcile.simulatedcluster import SimulatedCluster
from tests.support import build, rights


def test_a_sound_cluster_has_no_finding() -> None:
    """Every check is made, and none finds anything."""
    report = diagnose(sound())
    assert [each.findings for each in report.results] == [()] * len(CHECKS)
    assert report.status == 0


CONTROLLER, WEBHOOK = deployment("controller"), deployment("webhook")
RUNS = "no class of its own"
BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("kubernetes", {"version": "v1.29.14"}, "Kubernetes v1.29.14; kavip needs 1.30"),
    ("kubernetes", {"version": ""}, "of unknown version"),
    ("crds", {"definitions": {}}, "CustomResourceDefinition vippools.kavip.io does not exist"),
    ("crds", {"definitions": definitions(established="False")}, "vippools.kavip.io is not established"),
    ("crds", {"definitions": definitions(version="v1")}, "vippools.kavip.io does not serve v1alpha1"),
    ("crds", {"definitions": definitions(without="cooldownSeconds")}, "vippools.kavip.io lacks spec.cooldownSeconds"),
    ("crds", {"definitions": definitions(without="routerIDs")}, "redhatcop.redhat.io lacks status.routerIDs"),
    ("deployments", {"workloads": (WEBHOOK,)}, "no Deployment runs kavip's controller"),
    (
        "deployments",
        {"workloads": (CONTROLLER, deployment("webhook", ready=0))},
        "kavip/kavip-webhook has no ready pod",
    ),
    ("deployments", {"workloads": (WEBHOOK, deployment("controller", version="0.0.9"))}, "is of version 0.0.9"),
    (
        "rights",
        {"denied": (Right("kavip/kavip-controller", "list", "", "services"),)},
        "account kavip/kavip-controller may not list services in all namespaces",
    ),
    (
        "webhooks",
        {"configurations": {}},
        "ValidatingWebhookConfiguration kavip has no webhook validate-service.kavip.io",
    ),
    ("webhooks", {"configurations": configurations(ca_bundle="")}, "has no caBundle"),
    ("webhooks", {"configurations": configurations(ca_bundle="!")}, "without a readable certificate"),
    ("webhooks", {"configurations": configurations(ca_bundle="aGVsbG8=")}, "without a readable certificate"),
    (
        "webhooks",
        {"configurations": configurations(ca_bundle=bundle(NOW - timedelta(days=1)))},
        "has only expired certificates",
    ),
    ("webhook-answers", {"dry_run": DryRun(201)}, "accepts a Service that kavip refuses"),
    ("webhook-answers", {"dry_run": DryRun(500, "x509: unknown authority")}, "x509: unknown authority"),
    ("failure-policies", {"configurations": configurations(validating="Ignore")}, "validate-vippool.kavip.io"),
    ("failure-policies", {"configurations": configurations(mutating="Fail")}, "mutate-service.kavip.io"),
    (
        "load-balancers",
        {"workloads": (WEBHOOK, CONTROLLER, speaker())},
        f"MetalLB runs (metallb-system/speaker) and has {RUNS}",
    ),
    *(
        (
            "load-balancers",
            {"workloads": (WEBHOOK, CONTROLLER, workload("kube-system/lb", image, env=env))},
            f"{name} runs",
        )
        for name, image, env in (
            ("MetalLB", "docker.io/bitnami/metallb-controller:1", {}),
            ("MetalLB", "registry.redhat.io/openshift4/metallb-rhel9@sha256:12", {}),
            ("kube-vip", "ghcr.io/kube-vip/kube-vip:v1.0.0", {"svc_enable": "true"}),
            ("kube-vip", "ghcr.io/kube-vip/kube-vip:v1.0.0", {"svc_enable": "True", "lb_class_only": "0"}),
            ("ServiceLB of K3s", "rancher/klipper-lb:v0.4.9", {}),
            ("PureLB", "ghcr.io/purelb/purelb/allocator:v0.13", {}),
            ("OpenELB", "kubesphere/openelb-controller:v0.6", {}),
        )
    ),
    (
        "load-balancers",
        {"workloads": (WEBHOOK, CONTROLLER, workload("old/keepalived-operator", "quay.io/x/operator:1"))},
        "keepalived-operator runs (old/keepalived-operator)",
    ),
    (
        "default-group",
        {"objects": objects(build.group("lb/later", default=True, created="2026-02-01T00:00:00Z"))},
        "KeepalivedGroup lb/later is labelled as default group, and so is lb/edge",
    ),
    (
        "pools",
        {"objects": objects(build.pool("edge", "192.0.2.0/28"))},
        "VIPPool edge has 192.0.2.11, the address of node n1",
    ),
    (
        "pools",
        {"objects": objects(build.pool("edge", "10.96.4.0/24"))},
        "10.96.4.0/24, which lies in the cluster's Service range",
    ),
    (
        "pools",
        {"objects": objects(build.pool("edge", "10.244.1.128/25"))},
        "10.244.1.128/25, which lies in the pod range",
    ),
    ("vrids", {"objects": objects(colliding())}, "KeepalivedGroup lb/edge: VRID 7 on eth0 of n1"),
    (
        "keepalived",
        {"agents": (agent("n1", keepalived=KeepalivedReport()),)},
        "keepalived of group lb/edge does not answer",
    ),
    (
        "keepalived",
        {"agents": (agent("n1", refused="line 7: what?"),)},
        "node n1 refuses the configuration of group lb/edge",
    ),
    ("keepalived", noting(ProblemCode.KEEPALIVED_UNTESTED, "keepalived is 9.9"), "node n1: keepalived is 9.9"),
    ("interfaces", {"agents": (agent("n2", missing_interfaces=("vlan7",)),)}, "node n2 has no interface vlan7"),
    ("strict-arp", noting(ProblemCode.STRICT_ARP_OFF, "without strictARP"), "node n1: without strictARP"),
    ("rp-filter", noting(ProblemCode.REQUESTS_FILTERED, "rp_filter of eth1"), "node n1: rp_filter of eth1"),
    (
        "adverts",
        {"agents": (agent("n1", state="MASTER", again="MASTER"), agent("n2", state="MASTER", again="MASTER"))},
        "group lb/edge: nodes n1, n2 are masters at once of shop/a, shop/b",
    ),
    (
        "config-delay",
        {"agents": (agent("n1", wanted_hash="older"),), "configs": {"lb/edge": config(written=NOW - LATE)}},
        "node n1 has not mounted the configuration of group lb/edge that was written 3 minutes ago",
    ),
    (
        "clocks",
        {"heartbeats": (heartbeat("n1", seconds=8),)},
        "the clock of node n1 is 8 s behind that of the API server",
    ),
    (
        "clocks",
        {"heartbeats": (heartbeat("n1", seconds=-8),)},
        "the clock of node n1 is 8 s ahead of that of the API server",
    ),
]


def whats(report: DoctorReport) -> dict[str, list[str]]:
    """What each check has found."""
    return {each.check.name: [one.what for one in each.findings] for each in report.results if each.findings}


@pytest.mark.parametrize(("check", "changes", "what"), BROKEN, ids=lambda each: each if isinstance(each, str) else "")
def test_what_is_broken_is_found(check: str, changes: dict[str, Any], what: str) -> None:
    """Only the check of the broken thing finds it, and names a command."""
    report = diagnose(sound(**changes))
    assert set(whats(report)) == {check}
    assert any(what in each for each in whats(report)[check]), whats(report)
    assert all(one.command for each in report.results for one in each.findings)
    assert report.status == 1


def test_every_check_is_broken_once() -> None:
    """The table above breaks the thing of every check; names and texts of checks are unique."""
    assert {name for name, _, _ in BROKEN} == {each.name for each in CHECKS}
    assert len({each.name for each in CHECKS}) == len({each.looks_for for each in CHECKS}) == len(CHECKS)


def ignored(key: str, *, created: str) -> KeepalivedGroup:
    """A default group in a namespace that groupNamespaces leaves out, as the controller reports it."""
    group = build.group(key, default=True, created=created)
    simulation = SimulatedCluster(Snapshot.from_objects([group], group_namespaces=["lb"]))
    simulation.group(key)
    return simulation.snapshot.outside[key]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"workloads": (WEBHOOK, CONTROLLER, workload("a/b", "example/metallbx", replicas=1))}, id="image"),
        *(
            pytest.param({"workloads": (WEBHOOK, CONTROLLER, speaker(*args))}, id=" ".join(args))
            for args in (("--lb-class", "x"), ("-lb-class=x",))
        ),
        *(
            pytest.param({"workloads": (WEBHOOK, CONTROLLER, workload("a/b", image, env=env))}, id=f"{image} {env}")
            for image, env in (
                ("registry.redhat.io/openshift4/metallb-rhel9-operator:1", {}),
                ("ghcr.io/kube-vip/kube-vip:v1", {"svc_enable": "1", "lb_class_only": "T"}),
                ("ghcr.io/kube-vip/kube-vip:v1", {"svc_enable": "yes"}),
            )
        ),
        pytest.param(
            {
                "workloads": (
                    WEBHOOK,
                    CONTROLLER,
                    workload("a/b", "ghcr.io/kube-vip/kube-vip:v1", env={"cp_enable": "true"}),
                )
            },
            id="kube-vip for the API server only",
        ),
        pytest.param(
            {"workloads": (WEBHOOK, CONTROLLER, workload("a/keepalived-operator", "x", replicas=0))}, id="stopped"
        ),
        pytest.param(
            {"workloads": (), "configurations": configurations(url="https://192.0.2.1:9443")}, id="outside the cluster"
        ),
        pytest.param(
            {"objects": objects(build.pool("edge", "192.0.2.0/28", exclude=["192.0.2.11-192.0.2.12"]))}, id="excluded"
        ),
        pytest.param(
            {"agents": (agent("n1", state="MASTER", again="MASTER"), agent("n2", state="MASTER", again="BACKUP"))},
            id="a fail-over",
        ),
        pytest.param(
            {
                "agents": (agent("n1", wanted_hash="older"),),
                "configs": {"lb/edge": config(written=NOW - LATE + timedelta(seconds=1))},
            },
            id="a recent configuration",
        ),
        pytest.param(
            {
                "agents": (agent("n1", wanted_hash="older"),),
                "configs": {"lb/edge": config(written=NOW - LATE, text="[")},
            },
            id="a malformed configuration",
        ),
        pytest.param({"heartbeats": (heartbeat("n1", seconds=SKEW.total_seconds()),)}, id="a slow heartbeat"),
        pytest.param({"heartbeats": (Heartbeat(),)}, id="a heartbeat without times"),
        pytest.param({"dry_run": None}, id="no dry run"),
        pytest.param({"objects": objects(ignored("old/edge", created="2025-01-01T00:00:00Z"))}, id="ignored default"),
    ],
)
def test_what_is_sound_is_not_found(changes: dict[str, Any]) -> None:
    """What looks similar to a fault has no finding."""
    assert whats(diagnose(sound(**changes))) == {}


def test_the_command_for_a_pool_excludes_everything_at_once() -> None:
    """Each finding of a pool has the same command, with the present exclusions and all new ones."""
    given = objects(build.pool("edge", "192.0.2.0/28", exclude=["192.0.2.1"]))
    (result,) = [each for each in diagnose(sound(objects=given)).results if each.findings]
    (command,) = {each.command for each in result.findings}
    assert command == (
        "kubectl patch vippool edge --type=merge"
        """ --patch='{"spec": {"exclude": ["192.0.2.1", "192.0.2.11", "192.0.2.12"]}}'"""
    )


def test_a_source_that_cannot_be_read() -> None:
    """Its checks are not made, and the exit status is 2 unless another check finds something."""
    gaps = {Source.AGENTS: Gap(f"you may not {Source.AGENTS}")}
    report = diagnose(sound(gaps=gaps, **noting(ProblemCode.STRICT_ARP_OFF, "no")))
    unmade = [each.check.name for each in report.results if each.gap]
    assert unmade == [each.name for each in CHECKS if Source.AGENTS in each.needs]
    assert (whats(report), report.status) == ({}, 2)
    assert diagnose(sound(gaps=gaps, version="v1.29.0")).status == 1


def test_a_source_that_is_read_in_part() -> None:
    """Its checks judge what was read, and say that it is not everything."""
    gaps = {Source.AGENTS: Gap("pod lb/edge-2: 503", is_whole=False)}
    report = diagnose(sound(gaps=gaps, **noting(ProblemCode.STRICT_ARP_OFF, "without strictARP")))
    (result,) = [each for each in report.results if each.findings]
    assert (result.check.name, result.gap) == ("strict-arp", "pod lb/edge-2: 503")


def test_findings_are_bounded_lines() -> None:
    """Of many findings the first ones are listed; a hostile text is one printable line of bounded length."""
    hostile = "\x1b[2J\n\u202eproblem " + "x" * 5000
    many = tuple(agent(f"n{n:03}", notes=[NodeProblem(ProblemCode.STRICT_ARP_OFF, hostile)]) for n in range(MOST + 5))
    report = diagnose(sound(agents=many, dry_run=DryRun(500, hostile)))
    for result in report.results:
        for each in result.findings:
            assert each.what.isprintable() and len(each.what) <= 1000
    (result,) = [each for each in report.results if each.check.name == "strict-arp"]
    assert (len(result.findings), result.omitted) == (MOST, 5)


def test_agents_are_asked_again_only_if_they_contradict_each_other() -> None:
    """Two masters of one instance in one group do; a master in each of two groups does not."""
    one, other = agent("n1", state="MASTER"), agent("n2", state="MASTER")
    assert contested([one, other])
    assert not contested([one, agent("n2")])
    assert not contested([one, replace(other, group="lb/other")])


def test_needed_rights() -> None:
    """Each account is reviewed for its own component; the rights of groups in their namespaces."""
    everywhere = needed_rights((WEBHOOK, CONTROLLER, speaker()))
    assert {each.account for each in everywhere} == {"kavip/kavip-webhook", "kavip/kavip-controller"}
    assert Right("kavip/kavip-controller", "create", "apps", "daemonsets") in everywhere
    assert Right("kavip/kavip-webhook", "create", "apps", "daemonsets") not in everywhere
    limited = needed_rights((deployment("controller", spaces="lb, more"),))
    spaces = {each.namespace for each in limited if each.resource == "daemonsets"}
    assert spaces == {"lb", "more"}
    assert not any(re.search("secrets|leases|webhook", each.resource) for each in everywhere)


def test_only_unconditional_rights_are_needed() -> None:
    """An account of the chart holds each of them with all values of the chart."""
    for command, found in (("webhook", WEBHOOK), ("controller", CONTROLLER)):
        unconditional = {
            right
            for rule in rights.rules()
            if command in rule.accounts and not (rule.when or rule.names or rule.only)
            for right in rule.rights
        }
        needed = {(each.group, each.resource, each.verb) for each in needed_rights((found,))}
        assert needed and needed <= unconditional
