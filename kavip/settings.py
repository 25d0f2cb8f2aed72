"""
Settings of ``kavip run``, ``webhook`` and ``controller``: each is a flag, a ``KAVIP_*`` variable and a chart value.

``log_level`` is ``--log-level``, ``KAVIP_LOG_LEVEL`` and ``logLevel``. A bad value raises a :class:`SettingsError` that
names the flag, the variable, the value and the remedy.
"""

import difflib
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_network
from typing import Any

from kavip import names
from kavip.errors import BadInput, SettingsError
from kavip.podtemplate.permissions import TemplatePermissions


def setting(
    default: Any, doc: str, *, choices: tuple[str, ...] = (), minimum: int = 0, variables: tuple[str, ...] = ()
) -> Any:
    """A field of :class:`Settings` with its help text, its allowed values, the least number, and further variables."""
    metadata = {"doc": doc, "choices": choices, "minimum": minimum, "variables": variables}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an administrator; each field has its help text."""

    kubeconfig: str = setting(
        "", "path of a kubeconfig; empty: KUBECONFIG, then ~/.kube/config, then the pod's service account, as kubectl"
    )
    namespace: str = setting("kavip", "namespace of kavip's Lease, CA Secret and webhook Service")
    identity: str = setting("", "name of this replica in the Lease; empty: host name, _ and process ID")
    image: str = setting("kavip:latest", "image of kavip, for the pods of a group that names no image")
    pull_policy: str = setting(
        names.PULL_POLICY, "pull policy of that image in groups' pods", choices=("Always", "IfNotPresent", "Never")
    )
    pull_secrets: str = setting(
        "", "Secrets with which the pods of groups pull images, in the namespace of the group, comma-separated"
    )
    ipam: str = setting(
        "auto",
        "whether kavip assigns addresses; auto: not if OpenShift does",
        choices=("auto", "always", "never"),
    )
    webhook_host: str = setting("", "address that the webhook binds to; empty: all")
    webhook_port: int = setting(names.WEBHOOK_PORT, "port of the webhook (TLS)")
    webhook_service: str = setting("kavip-webhook", "Service of the webhook")
    webhook_configuration: str = setting(
        "kavip", "name of the two webhook configurations; kavip injects their caBundle"
    )
    webhook_url: str = setting("", "https://HOST:PORT of this webhook; kavip registers this URL (outside a cluster)")
    olm_owner: str = setting(
        "",
        "name of the ClusterServiceVersion by which OLM runs kavip: kavip registers its webhooks for Services, and OLM "
        "the others",
    )
    webhook_client_ca: str = setting(
        "",
        "CA of the client certificates of API servers, as PEM or the path of a file, which is read at the start; "
        "no other connection displaces one with such a certificate; empty: none is requested",
    )
    allow_missing_group: str = setting(
        "refuse",
        "reaction to a Service that names a missing group",
        choices=("refuse", "warn"),
    )
    group_namespaces: str = setting("", "namespaces whose KeepalivedGroups kavip reads, comma-separated; empty: all")
    external_ips_scope: str = setting(
        "managed",
        "Services whose spec.externalIPs are checked",
        choices=("managed", "all", "off"),
    )
    certs_mode: str = setting(
        "self",
        "source of the webhook's certificate; self: kavip issues it with its own CA",
        choices=("self", "cert-manager", "service-ca", "provided"),
    )
    certs_secret: str = setting(
        "kavip-webhook-tls", "Secret with the webhook's certificate; not used with certs-mode self"
    )
    metrics_host: str = setting("", "address that /metrics binds to; empty: all")
    metrics_port: int = setting(names.METRICS_PORT, "port of /metrics")
    metrics_secure: bool = setting(
        False,
        "serve /metrics over TLS, to clients whose token may get the nonResourceURL /metrics (TokenReview, "
        "SubjectAccessReview)",
    )
    metrics_cert_path: str = setting(
        "",
        "directory with tls.crt and tls.key of /metrics, read again after changes; empty: kavip signs a certificate "
        "itself",
    )
    probe_host: str = setting("", "address that /livez and /readyz bind to; empty: all")
    probe_port: int = setting(names.PROBE_PORT, "port of /livez and /readyz")
    agent_port: int = setting(
        names.AGENT_PORT, "first port for agents of new groups; each gets the next free one, and keeps it"
    )
    agent_allowed_cidrs: str = setting(
        "", "CIDRs of clients that agents answer (kavip's pods, Prometheus), comma-separated; empty: all"
    )
    agent_metrics: str = setting(
        names.Exporter.GEN2BRAIN.value,
        "exporter whose metric names the agents use for keepalived",
        choices=tuple(names.Exporter),
    )
    prometheus_account: str = setting(
        names.PROMETHEUS_ACCOUNT, "NAMESPACE/NAME of the service account of Prometheus; a group's Role permits it"
    )
    probe_interval: int = setting(1, "seconds between two probes of an agent when nothing changes", minimum=1)
    policy_images: str = setting("", "images that groups may name beside kavip's own, comma-separated; empty: any")
    policy_service_accounts: str = setting(
        "", "service accounts that groups may name beside default, comma-separated; empty: any"
    )
    template_namespaces: str = setting(
        "", "namespaces whose KeepalivedGroups may have templates, comma-separated; *: all; empty: none"
    )
    template_privileges: str = setting(
        "",
        "what patches of pods may add: hostPath, privileged, serviceAccountToken, comma-separated; empty: none",
    )
    template_file: str = setting(
        "",
        f"file with a patch of the pods of every group, read again after changes; also {names.TEMPLATE_FILE_VARIABLE}",
        variables=(names.TEMPLATE_FILE_VARIABLE,),
    )
    lease_seconds: int = setting(15, "seconds after which another replica may become the leader", minimum=3)
    drain_seconds: int = setting(5, "seconds for which the webhook still answers after SIGTERM")
    log_level: str = setting("info", "minimum level of log lines", choices=("debug", "info", "warning", "error"))
    log_format: str = setting(
        "auto", "format of log lines; auto: text on a terminal, otherwise json", choices=("auto", "json", "text")
    )

    @property
    def group_namespace_names(self) -> tuple[str, ...]:
        """The names in ``group_namespaces``, sorted."""
        return split_names(self.group_namespaces)

    @property
    def replica(self) -> str:
        """The identity of this process in the Lease."""
        return self.identity or f"{socket.gethostname()}_{os.getpid()}"

    def __post_init__(self) -> None:
        """Raise :class:`SettingsError` for a bad value."""
        for each in fields(self):
            _check(each.name, getattr(self, each.name), each.metadata)
        if self.webhook_url and not re.fullmatch(r"https://[^/\s]+(:\d+)?/?", self.webhook_url):
            raise SettingsError(f"{flag_and_variable('webhook_url')}: {self.webhook_url!r}: want https://HOST:PORT")
        if self.olm_owner and self.certs_mode != "provided":
            problem = "want provided with olm-owner: OLM issues the certificate"
            raise SettingsError(f"{flag_and_variable('certs_mode')}: {self.certs_mode!r}: {problem}")
        if self.webhook_url and self.certs_mode in ("cert-manager", "service-ca"):
            problem = "cannot be used with a webhook URL; want self or provided"
            raise SettingsError(f"{flag_and_variable('certs_mode')}: {self.certs_mode!r}: {problem}")
        for text in split_names(self.agent_allowed_cidrs):
            _check_network(text)
        try:
            TemplatePermissions.of(self.template_namespaces, self.template_privileges)
        except BadInput as error:
            raise SettingsError(str(error)) from None
        if not re.fullmatch(r"[a-z0-9-]+/[a-z0-9.-]+", self.prometheus_account):
            raise SettingsError(
                f"{flag_and_variable('prometheus_account')}: {self.prometheus_account!r}: want NAMESPACE/NAME"
            )


def split_names(text: str) -> tuple[str, ...]:
    """The comma-separated names in *text*, sorted."""
    return tuple(sorted({name for each in text.split(",") if (name := each.strip())}))


def _check_network(text: str) -> None:
    try:
        ip_network(text)
    except ValueError as error:
        raise SettingsError(f"{flag_and_variable('agent_allowed_cidrs')}: {error}") from None


def flag_and_variable(name: str, *, prefix: str = names.ENV_PREFIX) -> str:
    """How messages name a setting."""
    return f"--{name.replace('_', '-')} ({prefix}_{name.upper()})"


def _check(name: str, value: object, rules: Mapping[str, Any]) -> None:
    if rules["choices"] and value not in rules["choices"]:
        raise SettingsError(f"{flag_and_variable(name)}: {value!r}: want one of {', '.join(rules['choices'])}")
    if isinstance(value, int) and value < rules["minimum"]:
        raise SettingsError(f"{flag_and_variable(name)}: {value!r}: want at least {rules['minimum']}")
    if name.endswith("_port") and not 0 <= int(str(value)) <= 65535:
        raise SettingsError(f"{flag_and_variable(name)}: {value!r}: want a port, 0 to 65535")


_INJECTED = re.compile(r"_(SERVICE_(HOST|PORT)(_.*)?|PORT(_\d+_(TCP|UDP)(_.*)?)?)$")
"""Variables that kubelet injects for a Service whose name begins with kavip."""


def unknown_variables(environment: Mapping[str, str], known: set[str]) -> list[str]:
    """One line for each unknown ``KAVIP_*`` variable, with the nearest known name."""
    prefix = f"{names.ENV_PREFIX}_"
    lines = []
    for name in sorted(environment):
        injected = _INJECTED.search(name) and (not name.endswith("_PORT") or "://" in environment[name])
        if not name.startswith(prefix) or name in known or injected or name == f"{prefix}CACHE":  # of the testbed
            continue
        near = difflib.get_close_matches(name, known, n=1)
        lines.append(f"environment variable {name} is unknown" + (f"; did you mean {near[0]}?" if near else ""))
    return lines
