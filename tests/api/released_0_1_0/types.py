"""
How kavip 0.1.0 (commit 7b04379) reads ``/state`` and ``agent.json``: a copy that never changes.

``state/`` holds literal answers of its agent, one for each refusal and note that it can report, and ``agent/`` literal
texts that its controller writes.
"""

from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct, field

_MOST: Final = 1024
_MOST_VIPS: Final = 1 << 16
SECRET_MISSING: Final = "password: the Secret"
"""A refusal with this beginning is reported as ``SecretMissing``."""

T = TypeVar("T")
Many = Annotated[list[T], Meta(max_length=_MOST)]
Name = Annotated[str, Meta(max_length=400)]
Word = Annotated[str, Meta(max_length=32)]


class Wire(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The base of all wire types."""


# --- the controller reads /state --------------------------------------------------------------------------------------
class ErrorsReport(Wire, frozen=True, gc=False):
    """``instances[].errors``."""

    address_list: int = 0
    authentication: int = 0
    interval: int = 0


class InstanceReport(Wire, frozen=True, gc=False):
    """``instances[]``."""

    name: Name
    router_id: Annotated[int, Meta(ge=0, le=255)] = field(name="routerID", default=0)
    family: int = 4
    state: Word = ""
    virtual_ips: list[str] = field(name="virtualIPs", default=[])
    priority: int = 0
    last_transition: Name = ""
    interface: Name = ""
    errors: ErrorsReport = ErrorsReport()


class LeftOutReport(Wire, frozen=True, gc=False):
    """``leftOut[]``."""

    name: str
    reason: str = ""
    by: str = ""
    kept: bool = False
    virtual_ips: list[str] = field(name="virtualIPs", default=[])


class LocalReport(Wire, frozen=True, gc=False):
    """``locals[]``."""

    track: str
    ready: bool | None = None


class DaemonReport(Wire, frozen=True):
    """``keepalived``."""

    version: str = ""
    running: bool = False


class Report(Wire, frozen=True):
    """``/state``."""

    group: str
    config_hash: str = ""
    refused: str = ""
    note: str = ""
    keepalived: DaemonReport = DaemonReport()
    instances: Many[InstanceReport] = []
    left_out: Many[LeftOutReport] = []
    prepared: str = ""
    next_refused: str = ""
    switch_at: str = ""
    now: str = ""
    new_password: str = ""
    locals: Many[LocalReport] = []


def report_of(body: bytes) -> Report:
    """Decode an answer."""
    report = msgspec.json.decode(body, type=Report)
    vips = [*(each.virtual_ips for each in report.instances), *(each.virtual_ips for each in report.left_out)]
    if sum(map(len, vips)) > _MOST_VIPS:
        raise msgspec.ValidationError(f"more than {_MOST_VIPS:,} virtual IPs")
    return report


# --- the controller reads agent.json back -----------------------------------------------------------------------------
class NextRecord(Wire, frozen=True):
    """``next``."""

    config_hash: str = ""
    interface_from_ip: str = field(name="interfaceFromIP", default="")
    secret: str = ""
    secret_key: str = ""
    password: str = ""
    renewals: int = 0
    renewed: bool = False


class Record(NextRecord, frozen=True):
    """``agent.json``."""

    authentication: bool = False
    next: NextRecord | None = None
    next_hash: str = ""
    switch_at: str = ""
    tries: int = 0
    blame: str = ""


# --- the agent reads agent.json ---------------------------------------------------------------------------------------
class CaFrom(Wire, frozen=True):
    """``checks[].caFrom``."""

    name: str
    key: str = "ca.crt"
    kind: str = "ConfigMap"


class Check(Wire, frozen=True):
    """``checks[]``."""

    name: str
    url: str
    interval_seconds: int = 2
    timeout_seconds: int = 1
    fail_after: int = 3
    succeed_after: int = 2
    on_failure: str = "Fault"
    weight: int | None = None
    ca_from: CaFrom | None = None


class Local(Wire, frozen=True):
    """``locals[]``."""

    track: str
    port: int = 0
    nodes: tuple[str, ...] = ()


class NextMounted(Struct, frozen=True, rename="camel"):
    """``next``."""

    config_hash: str
    interface_from_ip: str = field(name="interfaceFromIP", default="")
    password: str = ""
    renewals: int = 0


class Mounted(Struct, frozen=True, rename="camel"):
    """``agent.json``."""

    config_hash: str
    group: str = ""
    interface_from_ip: str = field(name="interfaceFromIP", default="")
    authentication: bool = False
    static: bool = False
    password: str = ""
    renewals: int = 0
    next: NextMounted | None = None
    next_hash: str = ""
    switch_at: str = ""
    checks: tuple[Check, ...] = ()
    locals: tuple[Local, ...] = ()
