"""
The table of checks, and the report about what they find.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from kavip.api.text import one_line
from kavip.cli.views.doctor import balancers, groups, nodes, programs, webhooks
from kavip.cli.views.doctor.finding import Check, Finding
from kavip.cli.views.doctor.inspection import Inspection, Source

MOST: Final = 20
"""Findings of one check that are reported."""
_LONGEST: Final = 1000  # characters of a text of a finding
_AGENTS: Final = (Source.GROUPS, Source.AGENTS)

CHECKS: Final = (
    Check(
        "kubernetes",
        "Kubernetes older than 1.30",
        "An older API server evaluates no match conditions of webhooks, and does not keep `ipMode`.",
        (Source.VERSION,),
        programs.kubernetes,
    ),
    Check(
        "crds",
        "a CustomResourceDefinition that is missing, not established, or lacks fields of this version",
        "The API server drops fields that it does not know, without an error.",
        (Source.DEFINITIONS,),
        programs.definitions,
    ),
    Check(
        "deployments",
        "a part of kavip that does not run, or in another version than this program",
        "Without the controller no address is assigned; without the webhook objects of kavip are refused.",
        (Source.WORKLOADS, Source.WEBHOOKS),
        programs.deployments,
    ),
    Check(
        "rights",
        "an account of kavip without a right that it needs with all settings",
        "The controller waits until it can read every kind, and retries writes that are refused.",
        (Source.WORKLOADS, Source.REVIEWS),
        programs.rights,
    ),
    Check(
        "webhooks",
        "a webhook for Services that is not registered, or one without a valid `caBundle`",
        "The API server asks only registered webhooks, and none whose certificate it cannot verify.",
        (Source.WEBHOOKS,),
        webhooks.registered,
    ),
    Check(
        "webhook-answers",
        "an API server that does not reach kavip, by a dry run of a Service that kavip refuses",
        "Objects of kavip are refused with `failed calling webhook`, or accepted without a check.",
        (Source.DRY_RUN,),
        webhooks.answers,
    ),
    Check(
        "failure-policies",
        "a failure policy that is not the default of the chart",
        "With `Ignore` the API server accepts invalid objects while kavip is down; with `Fail` of the mutating "
        "webhooks it refuses more than it must.",
        (Source.WEBHOOKS,),
        webhooks.failure_policies,
    ),
    Check(
        "load-balancers",
        "MetalLB or kube-vip without a class of its own, ServiceLB, PureLB, OpenELB, keepalived-operator",
        "Two programs that serve one Service write its status in turn, and announce two addresses.",
        (Source.WORKLOADS,),
        balancers.other_balancers,
    ),
    Check(
        "default-group",
        "more than one group with the label `kavip.io/default-group`",
        "The oldest one counts. If it is deleted, plain Services move to another group.",
        (Source.GROUPS,),
        groups.default_groups,
    ),
    Check(
        "pools",
        "a pool with addresses of nodes, pods or Services of the cluster",
        "kavip does not assign addresses of nodes and Services, so the pool is smaller than it looks; addresses of "
        "pods it may assign.",
        (Source.POOLS, Source.NODES, Source.SERVICES, Source.GROUPS, Source.SERVICE_RANGES),
        groups.pools,
    ),
    Check(
        "vrids",
        "a VRID of a group that another router on the segment uses",
        "Two routers with one VRID disturb each other: VIPs flap, or have two masters.",
        (Source.GROUPS,),
        groups.router_ids,
    ),
    Check(
        "keepalived",
        "a keepalived that does not answer, refuses its configuration, or has a version that kavip does not know",
        "The node holds no VIP, or continues with an old configuration.",
        _AGENTS,
        nodes.keepalived,
    ),
    Check(
        "interfaces",
        "a node without an interface that its group or a pool names",
        "The node cannot hold the VIPs on that interface.",
        _AGENTS,
        nodes.interfaces,
    ),
    Check(
        "strict-arp",
        "kube-proxy in IPVS mode without `strictARP`",
        "The node answers ARP for VIPs that other nodes hold, and takes their traffic.",
        _AGENTS,
        nodes.strict_arp,
    ),
    Check(
        "rp-filter",
        "a reverse path filter that drops requests for the VIPs of a pool with gateways",
        "The VIP does not answer clients behind the gateway.",
        _AGENTS,
        nodes.reverse_path,
    ),
    Check(
        "adverts",
        "an instance with two masters, in two answers some seconds apart",
        "VRRP packets (IP protocol 112) do not arrive, so both nodes answer for the VIPs.",
        _AGENTS,
        nodes.adverts,
    ),
    Check(
        "config-delay",
        "a node that has not mounted a configuration three minutes after it was written",
        "New VIPs do not start on the node, and old ones do not end there.",
        (*_AGENTS, Source.CONFIGS, Source.HEARTBEATS),
        nodes.config_delay,
    ),
    Check(
        "clocks",
        "a node whose clock differs by more than 5 s from the one of the API server",
        "All nodes make some changes at one instant. With different clocks VIPs have two masters or none meanwhile.",
        (Source.HEARTBEATS,),
        nodes.clocks,
    ),
)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The *findings* of a check, of which *omitted* more are not listed; *gap*: why it was not made, or not wholly."""

    check: Check
    findings: tuple[Finding, ...] = ()
    omitted: int = 0
    gap: str = ""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The results of all checks, in the order of the table."""

    results: tuple[CheckResult, ...]

    @property
    def status(self) -> int:
        """The exit status: 0 nothing is found, 1 something is, 2 nothing is found and a check was not made."""
        if any(each.findings for each in self.results):
            return 1
        return 2 if any(each.gap for each in self.results) else 0


def diagnose(found: Inspection) -> DoctorReport:
    """Make all checks whose sources could be read."""
    return DoctorReport(tuple(_result(each, found) for each in CHECKS))


def _result(check: Check, found: Inspection) -> CheckResult:
    gaps = [found.gaps[source] for source in check.needs if source in found.gaps]
    reason = one_line("; ".join(each.reason for each in gaps))[:_LONGEST]
    if any(each.is_whole for each in gaps):
        return CheckResult(check, gap=reason)
    first, omitted = _bounded(check.find(found))
    return CheckResult(check, first, omitted, reason)


def _bounded(findings: Iterable[Finding]) -> tuple[tuple[Finding, ...], int]:
    """The first findings as short printable lines, and the number of the others."""
    rest = iter(dict.fromkeys(findings))
    first = tuple(replace(each, what=one_line(each.what)[:_LONGEST]) for each in islice(rest, MOST))
    return first, sum(1 for _ in rest)
