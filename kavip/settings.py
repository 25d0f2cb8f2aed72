"""
Settings of ``kavip run``, ``webhook`` and ``controller``: each is a flag, a ``KAVIP_*`` variable and a chart value.

``log_level`` is ``--log-level``, ``KAVIP_LOG_LEVEL`` and ``logLevel``. A malformed value is a :class:`SettingsError`
that names the flag or variable and what would be right.
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
from kavip.errors import SettingsError


def setting(default: Any, doc: str, *, choices: tuple[str, ...] = (), lowest: int = 0) -> Any:
    """A field of :class:`Settings` with its help text, its allowed values, and the lowest number allowed."""
    return field(default=default, metadata={"doc": doc, "choices": choices, "lowest": lowest})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an administrator may set; see each field's ``doc``."""

    kubeconfig: str = setting("", "kubeconfig file; empty: the pod's service account")
    namespace: str = setting("kavip", "namespace of kavip's Lease, CA Secret and webhook Service")
    identity: str = setting("", "name of this replica in the Lease; empty: the host name")
    image: str = setting("kavip:latest", "kavip's own image, run by the pods of a group that names no other")
    ipam: str = setting(
        "auto",
        "who assigns addresses: auto stands aside where OpenShift does",
        choices=("auto", "always", "never"),
    )
    webhook_host: str = setting("", "address that the webhook binds to; empty: all")
    webhook_port: int = setting(names.WEBHOOK_PORT, "port of the webhook (TLS)")
    webhook_service: str = setting("kavip-webhook", "Service by which the API server reaches the webhook")
    webhook_configuration: str = setting("kavip", "name of the two webhook configurations whose caBundle kavip keeps")
    webhook_url: str = setting("", "https://HOST:PORT of this webhook; registers it by URL (outside a cluster)")
    allow_missing_group: str = setting(
        "refuse",
        "a Service that names a group which does not exist",
        choices=("refuse", "warn"),
    )
    group_namespaces: str = setting("", "namespaces in which KeepalivedGroups count, comma-separated; empty: all")
    external_ips_scope: str = setting(
        "managed",
        "whose spec.externalIPs are checked",
        choices=("managed", "all", "off"),
    )
    certs_mode: str = setting(
        "self",
        "who makes the webhook's certificate; self: kavip, from a CA of its own",
        choices=("self", "cert-manager", "service-ca", "provided"),
    )
    certs_secret: str = setting(
        "kavip-webhook-tls", "Secret with the webhook's certificate, where kavip does not make it itself"
    )
    metrics_host: str = setting("", "address that /metrics binds to; empty: all")
    metrics_port: int = setting(names.METRICS_PORT, "port of /metrics")
    probe_host: str = setting("", "address that /livez and /readyz bind to; empty: all")
    probe_port: int = setting(names.PROBE_PORT, "port of /livez and /readyz")
    agent_port: int = setting(names.AGENT_PORT, "first port given to the agents of a group")
    agent_allowed_cidrs: str = setting(
        "", "CIDRs whose clients agents answer, comma-separated: kavip's pods and Prometheus; empty: all"
    )
    agent_metrics: str = setting(
        names.Exporter.GEN2BRAIN.value,
        "whose names keepalived's metrics bear on the agents' /metrics",
        choices=tuple(names.Exporter),
    )
    prometheus_account: str = setting(
        names.PROMETHEUS_ACCOUNT, "NAMESPACE/NAME of the service account of Prometheus, which a group's Role admits"
    )
    probe_interval: int = setting(1, "seconds between two looks at an agent's /state when nothing changes", lowest=1)
    lease_seconds: int = setting(15, "seconds after which another replica may take over the controller", lowest=3)
    drain_seconds: int = setting(5, "seconds for which the webhook goes on answering after SIGTERM")
    log_level: str = setting("info", "least severe log line", choices=("debug", "info", "warning", "error"))
    log_format: str = setting(
        "auto", "log lines; auto: text on a terminal, else json", choices=("auto", "json", "text")
    )

    @property
    def group_homes(self) -> tuple[str, ...]:
        """The namespaces of ``group_namespaces``, sorted."""
        return listed(self.group_namespaces)

    @property
    def replica(self) -> str:
        """The identity of this process in the Lease."""
        return self.identity or f"{socket.gethostname()}_{os.getpid()}"

    def __post_init__(self) -> None:
        """Raise :class:`SettingsError` for a value that cannot be."""
        for each in fields(self):
            _check(each.name, getattr(self, each.name), each.metadata)
        if self.webhook_url and not re.fullmatch(r"https://[^/\s]+(:\d+)?/?", self.webhook_url):
            raise SettingsError(f"{shown('webhook_url')}: {self.webhook_url!r}: want https://HOST:PORT")
        if self.webhook_url and self.certs_mode in ("cert-manager", "service-ca"):
            why = "nobody injects a caBundle at a URL; want self or provided"
            raise SettingsError(f"{shown('certs_mode')}: {self.certs_mode!r}: {why}")
        for text in listed(self.agent_allowed_cidrs):
            _check_network(text)
        if not re.fullmatch(r"[a-z0-9-]+/[a-z0-9.-]+", self.prometheus_account):
            raise SettingsError(f"{shown('prometheus_account')}: {self.prometheus_account!r}: want NAMESPACE/NAME")


def listed(text: str) -> tuple[str, ...]:
    """The names in *text*, which commas part; sorted."""
    return tuple(sorted({name for each in text.split(",") if (name := each.strip())}))


def _check_network(text: str) -> None:
    try:
        ip_network(text)
    except ValueError as error:
        raise SettingsError(f"{shown('agent_allowed_cidrs')}: {error}") from None


def shown(name: str, *, prefix: str = names.ENV_PREFIX) -> str:
    """How messages name a setting: its flag and its variable."""
    return f"--{name.replace('_', '-')} ({prefix}_{name.upper()})"


def _check(name: str, value: object, rules: Mapping[str, Any]) -> None:
    if rules["choices"] and value not in rules["choices"]:
        raise SettingsError(f"{shown(name)}: {value!r}: want one of {', '.join(rules['choices'])}")
    if isinstance(value, int) and value < rules["lowest"]:
        raise SettingsError(f"{shown(name)}: {value!r}: want at least {rules['lowest']}")
    if name.endswith("_port") and not 0 <= int(str(value)) <= 65535:
        raise SettingsError(f"{shown(name)}: {value!r}: want a port, 0 to 65535")


_FOREIGN = re.compile(r"_(SERVICE_(HOST|PORT)(_.*)?|PORT(_\d+_(TCP|UDP)(_.*)?)?)$")
"""What kubelet injects for a Service whose name begins with kavip."""


def unknown_variables(environment: Mapping[str, str], known: set[str]) -> list[str]:
    """One line for each ``KAVIP_*`` variable that means nothing, with the nearest name that does."""
    prefix = f"{names.ENV_PREFIX}_"
    lines = []
    for name in sorted(environment):
        injected = _FOREIGN.search(name) and (not name.endswith("_PORT") or "://" in environment[name])
        if not name.startswith(prefix) or name in known or injected or name == f"{prefix}CACHE":  # the testbed's own
            continue
        near = difflib.get_close_matches(name, known, n=1)
        lines.append(f"environment variable {name} is unknown" + (f"; did you mean {near[0]}?" if near else ""))
    return lines
