"""
Whether the API server asks kavip, and trusts it.
"""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator
from datetime import datetime
from http import HTTPStatus
from typing import Final

from kavip import names
from kavip.admission import registration
from kavip.admission.registration import RegisteredWebhook
from kavip.api.registration import Webhook
from kavip.cli.views.doctor.finding import Finding
from kavip.cli.views.doctor.inspection import Inspection
from kavip.cli.views.doctor.programs import UPGRADE
from kavip.pki.trustbundle import parse_bundle, unexpired

NAME: Final = "kavip"
"""The name of both webhook configurations."""
PROBE_NAMESPACE: Final = "default"
PROBE: Final = {
    "metadata": {"annotations": {names.GROUP_ANNOTATION: "kavip-doctor"}},
    "spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"port": 80}]},
}
"""A Service that only kavip refuses: its annotation is no ``namespace/name``."""

_KINDS: Final = {registration.MUTATING: registration.MUTATORS, registration.VALIDATING: registration.VALIDATORS}
_CHART_VALUE: Final = {registration.MUTATING: "mutating", registration.VALIDATING: "validating"}
_WANTED: Final = {
    registration.MUTATING: registration.DEFAULTS.mutating,
    registration.VALIDATING: registration.DEFAULTS.validating,
}
_INSTALL: Final = UPGRADE.format(namespace="kavip")
_LOGS: Final = "kubectl logs --namespace=kavip --selector=app.kubernetes.io/name=kavip --tail=50"


def registered(found: Inspection) -> Iterator[Finding]:
    """Check that all webhooks are registered, each with an authority that has not expired."""
    for kind, expected in _KINDS.items():
        hooks = _hooks(found, kind)
        for each in expected:
            if each.is_of_services and _name(each) not in hooks:  # under OLM the others are in other configurations
                yield Finding(f"{kind} {NAME} has no webhook {_name(each)}", _INSTALL)
        for name, hook in sorted(hooks.items()):
            if problem := _distrust(hook, found.at):
                yield Finding(f"webhook {name} of {kind} {NAME} {problem}", _LOGS)


def _hooks(found: Inspection, kind: str) -> dict[str, Webhook]:
    configuration = found.configurations.get(kind)
    return {each.name: each for each in configuration.webhooks or ()} if configuration else {}


def _name(webhook: RegisteredWebhook) -> str:
    return f"{webhook.name}.{names.KAVIP_GROUP}"


def _distrust(hook: Webhook, at: datetime) -> str:
    """Why the API server cannot trust *hook*; "" if it may."""
    if not hook.client_config.ca_bundle:
        return "has no caBundle"
    try:
        authorities = parse_bundle(b64decode(hook.client_config.ca_bundle, validate=True))
    except (NotBase64, ValueError):
        authorities = []
    if not authorities:
        return "has a caBundle without a readable certificate"
    return "" if unexpired(authorities, at) else "has only expired certificates in its caBundle"


def answers(found: Inspection) -> Iterator[Finding]:
    """Check that the API server reaches kavip: a Service that kavip refuses is refused."""
    dry_run = found.dry_run
    if dry_run is None or dry_run.status == HTTPStatus.UNPROCESSABLE_ENTITY:
        return
    if dry_run.status == HTTPStatus.CREATED:
        yield Finding("the API server accepts a Service that kavip refuses: it does not ask kavip", _LOGS)
    else:
        yield Finding(f"the API server does not get an answer of kavip: {dry_run.message}", _LOGS)


def failure_policies(found: Inspection) -> Iterator[Finding]:
    """Check that the failure policies are those of the chart."""
    for kind, expected in _KINDS.items():
        hooks = _hooks(found, kind)
        for each in expected:
            hook = hooks.get(_name(each))
            wanted = "Ignore" if each.warns_only else _WANTED[kind]
            if hook is not None and hook.failure_policy != wanted:
                command = f"{_INSTALL} --set webhook.failurePolicy.{_CHART_VALUE[kind]}={_WANTED[kind]}"
                yield Finding(
                    f"webhook {hook.name} of {kind} {NAME} has the failure policy {hook.failure_policy}, not {wanted}",
                    command,
                )
