"""
Validation of a KeepalivedGroup by itself, and the defaults of a new one.

Only what needs no other object is checked here; the webhook, the controller and the offline commands check the rest.
Every problem is reported, each with the path of its field.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

from kavip.api.address import parse_address
from kavip.api.group import Check, GroupSpec, KeepalivedGroup
from kavip.api.naming import INTERFACE_REMEDY, check_annotations, check_key, check_name, is_interface
from kavip.api.refusal import MAX_FINDINGS, Refusal
from kavip.api.selector import check_labels, check_selector
from kavip.errors import BadInput
from kavip.names import DEFAULT_SEGMENT, MAX_ROUTER_ID, Reason
from kavip.vrrp import keywords, openshift, routerids, targets, timing, verbatim, virtualips
from kavip.vrrp.drain import SIGNALS
from kavip.vrrp.preference import MOST_TERMS, MOST_WEIGHT
from kavip.vrrp.tracking import CHECK_NAME

MODES: Final = ("PerService", "Shared")
ON_FAILURE: Final = ("Fault", "LowerPriority")
NEW_VERSION: Final = 3
NEW_INTERVAL: Final = 200
"""Interval of a new group: its VIPs move 0.7 s after a node dies; with keepalived-operator's values it is 3.1 s."""

_MOST_PREEMPT_DELAY: Final = 1000
_MOST_WEIGHT: Final = 253
_MOST_SECONDS: Final = 3600
_MOST_ROUNDS: Final = 100
_STATUSES: Final = range(200, 600)
_MOST_PORT: Final = 2**16 - 1
_LONGEST_NAME: Final = 63  # the name becomes a label value
_STRATEGIES: Final = ("RollingUpdate", "OnDelete")
_SEGMENT: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")


def check_group(group: KeepalivedGroup) -> tuple[Refusal, ...]:
    """What is wrong with *group* as it stands, in the order of its fields; at most :data:`MAX_FINDINGS`."""
    found = (finding for check in _CHECKS for finding in check(group.spec))
    return tuple(islice(chain(_name(group.metadata.name), found), MAX_FINDINGS))


def defaults(group: KeepalivedGroup) -> Mapping[str, Any]:
    """
    The defaults of a *new* group: names and values of the ``spec`` fields that it does not set.

    A password needs version 2, so a group with one keeps keepalived-operator's timing. An interval without a version
    means version 3; version 2 without an interval keeps one second.
    """
    spec = group.spec
    given: dict[str, Any] = {}
    if spec.unicast_enabled is None:
        given["unicastEnabled"] = True
    if spec.segment is None:
        given["segment"] = DEFAULT_SEGMENT
    if has_password(spec):
        return given
    versioned = spec.vrrp_version is not None or "vrrp_version" in (spec.verbatim_config or {})
    if not versioned:
        given["vrrpVersion"] = NEW_VERSION
    if spec.advert_interval_milliseconds is None and (not versioned or timing.version_of(spec) == NEW_VERSION):
        given["advertIntervalMilliseconds"] = NEW_INTERVAL
    return given


def has_password(spec: GroupSpec) -> bool:
    """Whether VRRP authentication is on: a Secret is named, as with keepalived-operator."""
    return spec.password_auth is not None and bool(spec.password_auth.secret_ref.name)


def vrrp_interface_of(spec: GroupSpec) -> str:
    """The interface on which all instances of a group send VRRP; their VIPs may be on others."""
    return spec.vrrp_interface or spec.interface


def _refuse(field: str, value: object, remedy: str) -> Refusal:
    return Refusal.of(Reason.INVALID, BadInput(field, value, remedy))


def _name(name: str) -> Iterator[Refusal]:
    if len(name) > _LONGEST_NAME:
        yield _refuse(
            "metadata.name", name, f"want at most {_LONGEST_NAME} characters, because it becomes a label value"
        )


def _interfaces(spec: GroupSpec) -> Iterator[Refusal]:
    named = [("spec.interface", spec.interface), ("spec.vrrpInterface", spec.vrrp_interface or None)]
    for field, name in named:
        if name is not None and not is_interface(name):
            yield _refuse(field, name, INTERFACE_REMEDY)
    if spec.interface_from_ip:
        try:
            parse_address(spec.interface_from_ip, "spec.interfaceFromIP")
        except BadInput as error:
            yield Refusal.of(Reason.INVALID, error)


def _verbatim_config(spec: GroupSpec) -> Iterator[Refusal]:
    yield from verbatim.read_global(spec.verbatim_config, allow_scripts=spec.allow_scripts).refusals


def _blacklist(spec: GroupSpec) -> Iterator[Refusal]:
    seen: dict[int, int] = {}
    for index, number in enumerate(spec.blacklist_router_ids or ()):
        field = f"spec.blacklistRouterIDs[{index}]"
        if number not in routerids.ALL:
            yield _refuse(field, number, f"want a VRID from 1 to {MAX_ROUTER_ID}")
        elif number in seen:
            yield _refuse(field, number, f"already at blacklistRouterIDs[{seen[number]}]; remove it")
        seen.setdefault(number, index)


def _virtual_ips(spec: GroupSpec) -> Iterator[Refusal]:
    seen: dict[object, int] = {}
    for index, entry in enumerate(spec.virtual_ips or ()):
        field = f"spec.virtualIPs[{index}]"
        if entry.interface and not is_interface(entry.interface):
            yield _refuse(f"{field}.interface", entry.interface, INTERFACE_REMEDY)
        if entry.router_id is not None:
            yield from _pinned_id(spec, entry.router_id, f"{field}.routerID")
        try:
            vip = virtualips.parse_virtual_ip(entry.address, f"{field}.address", interface="")
        except BadInput as error:
            yield Refusal.of(Reason.INVALID, error)
            continue
        if vip.address in seen:
            yield _refuse(f"{field}.address", entry.address, f"already at virtualIPs[{seen[vip.address]}]; remove it")
        seen.setdefault(vip.address, index)


def _pinned_id(spec: GroupSpec, number: int, field: str) -> Iterator[Refusal]:
    if number not in routerids.ALL:
        yield _refuse(field, number, f"want a VRID from 1 to {MAX_ROUTER_ID}")
    elif number in (spec.blacklist_router_ids or ()):
        yield _refuse(field, number, "blacklistRouterIDs has it; remove it from one of the two")
    elif number in routerids.blacklist_of(spec):
        yield _refuse(field, number, f"OpenShift cluster {spec.openshift_cluster_name} uses it; choose another VRID")


def _checks(spec: GroupSpec) -> Iterator[Refusal]:
    names: dict[str, int] = {}
    for index, check in enumerate(spec.checks or ()):
        field = f"spec.checks[{index}]"
        if not CHECK_NAME.fullmatch(check.name):
            yield _refuse(f"{field}.name", check.name, "want a name: up to 63 lower-case letters, digits or '-'")
        elif check.name in names:
            yield _refuse(f"{field}.name", check.name, f"already at checks[{names[check.name]}]; want another name")
        names.setdefault(check.name, index)
        yield from _check(check, field)


def _check(check: Check, field: str) -> Iterator[Refusal]:
    if check.ca_from is not None:
        yield from check_name(check.ca_from.name, f"{field}.caFrom.name")
        yield from check_key(check.ca_from.key, f"{field}.caFrom.key")
    if check.url not in targets.PRESETS:
        try:
            target = targets.read_url(check.url, f"{field}.url")
        except BadInput as error:
            yield Refusal.of(Reason.INVALID, error)
        else:
            if check.ca_from is not None and target.scheme != "https":
                yield _refuse(f"{field}.caFrom", check.ca_from.name, "only an https URL has a CA; remove caFrom")
    elif check.ca_from is not None:
        yield _refuse(f"{field}.caFrom", check.ca_from.name, f"the CA of {check.url} is known; remove caFrom")
    counts = (
        ("intervalSeconds", check.interval_seconds, _MOST_SECONDS),
        ("timeoutSeconds", check.timeout_seconds, _MOST_SECONDS),
        ("failAfter", check.fail_after, _MOST_ROUNDS),
        ("succeedAfter", check.succeed_after, _MOST_ROUNDS),
    )
    for name, value, most in counts:
        if not 1 <= value <= most:
            yield _refuse(f"{field}.{name}", value, f"want 1 to {most}")
    if check.timeout_seconds > check.interval_seconds:
        remedy = f"want at most intervalSeconds, {check.interval_seconds}"
        yield _refuse(f"{field}.timeoutSeconds", check.timeout_seconds, remedy)
    if check.expected_status is not None and check.expected_status not in _STATUSES:
        yield _refuse(f"{field}.expectedStatus", check.expected_status, "want a status of HTTP, 200 to 599")
    if check.on_failure not in ON_FAILURE:
        yield _refuse(f"{field}.onFailure", check.on_failure, f"want {' or '.join(ON_FAILURE)}")
    if check.weight is not None and check.on_failure != "LowerPriority":
        yield _refuse(f"{field}.weight", check.weight, "want onFailure: LowerPriority, or no weight")
    elif check.weight is not None and not 1 <= check.weight <= _MOST_WEIGHT:
        yield _refuse(f"{field}.weight", check.weight, f"want a weight of 1 to {_MOST_WEIGHT}")


def _pods(spec: GroupSpec) -> Iterator[Refusal]:
    if spec.password_auth is not None:
        yield from check_name(spec.password_auth.secret_ref.name, "spec.passwordAuth.secretRef.name")
        yield from check_key(spec.password_auth.secret_key, "spec.passwordAuth.secretKey")
    yield from check_name(spec.daemonset_pod_priority_class_name, "spec.daemonsetPodPriorityClassName")
    yield from check_annotations(spec.daemonset_pod_annotations, "spec.daemonsetPodAnnotations")
    for index, secret in enumerate(spec.image_pull_secrets or ()):
        if set(secret) != {"name"} or not (isinstance(secret["name"], str) and secret["name"]):
            yield _refuse(f"spec.imagePullSecrets[{index}]", secret, "want the field name, and no other")
    strategy = (spec.update_strategy or {}).get("type")
    if strategy is not None and strategy not in _STRATEGIES:
        yield _refuse("spec.updateStrategy.type", strategy, f"want {' or '.join(_STRATEGIES)}")


def _preemption(spec: GroupSpec) -> Iterator[Refusal]:
    delay = spec.preempt_delay_seconds
    if delay is not None and not 0 <= delay <= _MOST_PREEMPT_DELAY:
        yield _refuse("spec.preemptDelaySeconds", delay, f"want 0 to {_MOST_PREEMPT_DELAY}")
    if spec.no_preempt and delay:
        yield _refuse(
            "spec.preemptDelaySeconds", delay, "noPreempt and a delay exclude each other; want one of the two"
        )


def _timing(spec: GroupSpec) -> Iterator[Refusal]:
    version, interval = timing.version_of(spec), spec.advert_interval_milliseconds
    if spec.vrrp_version is not None and spec.vrrp_version not in (2, 3):
        yield _refuse("spec.vrrpVersion", spec.vrrp_version, "want 2 or 3")
    if version == NEW_VERSION and spec.password_auth is not None and has_password(spec):
        remedy = "version 3 has no passwords; want vrrpVersion: 2, or no passwordAuth"
        yield _refuse("spec.passwordAuth", spec.password_auth.secret_ref.name, remedy)
    if interval is None:
        return
    field = "spec.advertIntervalMilliseconds"
    if version == NEW_VERSION:
        if not timing.STEP_V3 <= interval <= timing.LONGEST_V3 or interval % timing.STEP_V3:
            yield _refuse(field, interval, f"want multiples of {timing.STEP_V3}, up to {timing.LONGEST_V3}")
    elif not timing.SECOND <= interval <= timing.LONGEST_V2 or interval % timing.SECOND:
        yield _refuse(
            field,
            interval,
            "want whole seconds with version 2, 1000 to 255000; vrrpVersion: 3 allows shorter intervals",
        )


def _segment(spec: GroupSpec) -> Iterator[Refusal]:
    if spec.segment is not None and not _SEGMENT.fullmatch(spec.segment):
        yield _refuse("spec.segment", spec.segment, "want a name: up to 63 lower-case letters, digits, '-' or '.'")


def _placement(spec: GroupSpec) -> Iterator[Refusal]:
    terms = spec.placement.preferred or ()
    if len(terms) > MOST_TERMS:
        yield _refuse("spec.placement.preferred", f"{len(terms)} entries", f"want at most {MOST_TERMS}")
    for index, term in enumerate(terms[:MOST_TERMS]):
        field = f"spec.placement.preferred[{index}]"
        if not 1 <= term.weight <= MOST_WEIGHT:
            yield _refuse(f"{field}.weight", term.weight, f"want 1 to {MOST_WEIGHT}")
        if not term.node_selector:
            yield _refuse(f"{field}.nodeSelector", {}, "want a label: to prefer every node has no effect")
        yield from check_labels(term.node_selector, f"{field}.nodeSelector")


def _drain_on(spec: GroupSpec) -> Iterator[Refusal]:
    for index, signal in enumerate((spec.drain_on or ())[: len(SIGNALS) + 1]):
        if signal not in SIGNALS:
            yield _refuse(f"spec.drainOn[{index}]", signal, f"want {' or '.join(SIGNALS)}")


def _metrics_port(spec: GroupSpec) -> Iterator[Refusal]:
    if spec.metrics_port is not None and not 1 <= spec.metrics_port <= _MOST_PORT:
        yield _refuse("spec.metricsPort", spec.metrics_port, f"want 1 to {_MOST_PORT}, or leave it out")


def _openshift(spec: GroupSpec) -> Iterator[Refusal]:
    if spec.openshift_cluster_name:
        try:
            openshift.router_ids(spec.openshift_cluster_name, "spec.openshiftClusterName")
        except BadInput as error:
            yield Refusal.of(Reason.INVALID, error)


def _instances(spec: GroupSpec) -> Iterator[Refusal]:
    mode, count = spec.instances.mode, spec.instances.count
    if mode not in MODES:
        yield _refuse("spec.instances.mode", mode, f"want {' or '.join(MODES)}")
    room = routerids.capacity(routerids.blacklist_of(spec), frozenset())
    if not 1 <= count <= MAX_ROUTER_ID:
        yield _refuse("spec.instances.count", count, f"want 1 to {MAX_ROUTER_ID}")
    elif mode == "Shared" and count > room:
        yield _refuse(
            "spec.instances.count",
            count,
            f"want at most {room}, because blacklistRouterIDs and openshiftClusterName leave no more VRIDs",
        )


def _namespaces(spec: GroupSpec) -> Iterator[Refusal]:
    yield from check_selector(spec.allowed_namespaces, "spec.allowedNamespaces")


def _node_selector(spec: GroupSpec) -> Iterator[Refusal]:
    yield from check_labels(spec.node_selector, "spec.nodeSelector")


def _allow_verbatim(spec: GroupSpec) -> Iterator[Refusal]:
    similar = (*keywords.SERVICE, *keywords.ALLOWABLE)
    for index, keyword in enumerate(spec.allow_verbatim or ()):
        if problem := keywords.instance_problem(keyword, similar if index < verbatim.MOST_KEYWORDS else ()):
            yield _refuse(f"spec.allowVerbatim[{index}]", keyword, problem)


_CHECKS: Final[tuple[Callable[[GroupSpec], Iterator[Refusal]], ...]] = (
    _interfaces,
    _node_selector,
    _verbatim_config,
    _blacklist,
    _virtual_ips,
    _checks,
    _pods,
    _preemption,
    _timing,
    _segment,
    _openshift,
    _instances,
    _placement,
    _drain_on,
    _metrics_port,
    _namespaces,
    _allow_verbatim,
)
