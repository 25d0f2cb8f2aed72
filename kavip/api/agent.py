"""
``/state``: what the agents of the nodes report to the controller.

As with ``agent.json`` (:mod:`kavip.api.agentconfig`), both ends use these types. Sizes are bounded: a node may be
compromised, and what it reports is stored in conditions.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, Final, Self, TypeVar

import msgspec
from msgspec import Meta

from kavip.api.meta import Wire, field
from kavip.names import MAX_ROUTER_ID

LONGEST: Final = 200
"""Characters of a message from ``/state`` that the controller passes on."""
SEPARATOR: Final = "; "
"""Between the messages in ``note``; no message holds it."""

MOST_HARDWARE: Final = 16
"""Hardware addresses that a node reports."""
MOST_CONFLICTS: Final = 64
"""VIPs claimed by other machines that a node reports."""

VIPS_BY_HASH: Final = "virtual-ips=hash"
"""The preference (RFC 7240) of a client that knows lists of VIPs by their hashes."""
LONG_LIST: Final = 64
"""Such a client gets hashes instead of lists that are longer; both ends must have the same number."""

_MOST: Final = 1024  # entries of a list; a daemon runs 510 instances at most
_MOST_VIPS: Final = 1 << 17  # in all; the longest text has 80,000

T = TypeVar("T")
_Many = Annotated[tuple[T, ...], Meta(max_length=_MOST)]
_Name = Annotated[str, Meta(max_length=400)]  # as in status.instances, and so is a word
_Word = Annotated[str, Meta(max_length=32)]


class _Extensible(StrEnum):
    """Values of which a later version of kavip may have more: an unknown one is ``OTHER``."""

    @classmethod
    def _missing_(cls, value: object) -> Self:  # noqa: ARG003 - Enum's signature
        return cls["OTHER"]


class ProblemCode(_Extensible):
    """What is wrong on a node, for programs; its message is for people."""

    NONE = ""
    OTHER = "Other"
    """A code of a later version of kavip."""

    MOUNT_UNREADABLE = "MountUnreadable"
    MOUNT_INVALID = "MountInvalid"
    PASSWORD_MISSING = "PasswordMissing"  # noqa: S105 - a code
    PASSWORD_INVALID = "PasswordInvalid"  # noqa: S105 - a code
    PASSWORD_MISMATCH = "PasswordMismatch"  # noqa: S105 - a code
    PASSWORD_NOT_ACCEPTED = "PasswordNotAccepted"  # noqa: S105 - a code
    CONFIG_INVALID = "ConfigInvalid"
    CONFIG_CONFLICT = "ConfigConflict"
    NODE_ADDRESS = "NodeAddress"
    INTERFACE_MISSING = "InterfaceMissing"
    SOURCE_ADDRESS_UNUSABLE = "SourceAddressUnusable"
    SOURCE_ADDRESS_ELSEWHERE = "SourceAddressElsewhere"
    NO_IPV4_ADDRESS = "NoIPv4Address"
    NO_INSTANCE = "NoInstance"
    REFUSED_BY_KEEPALIVED = "RefusedByKeepalived"
    CONFIG_TEST_FAILED = "ConfigTestFailed"
    RUN_DIRECTORY_UNWRITABLE = "RunDirectoryUnwritable"
    RELOAD_NOT_CONFIRMED = "ReloadNotConfirmed"
    KEEPALIVED_EXITED = "KeepalivedExited"
    KEEPALIVED_KILLED = "KeepalivedKilled"
    KEEPALIVED_UNTESTED = "KeepalivedUntested"
    TRACK_FILES_IGNORED = "TrackFilesIgnored"
    CHECK_FAILING = "CheckFailing"
    CHECK_NOT_RUN = "CheckNotRun"
    STRICT_ARP_OFF = "StrictARPOff"
    ADDRESS_CONFLICT = "AddressConflict"
    CONFLICTS_UNDETECTED = "ConflictsUndetected"
    RETURN_ROUTE_INVALID = "ReturnRouteInvalid"
    RETURN_ROUTE_FAILED = "ReturnRouteFailed"
    ROUTING_TABLE_IN_USE = "RoutingTableInUse"
    REQUESTS_FILTERED = "RequestsFiltered"
    NODES_UNKNOWN = "NodesUnknown"
    WAITS_FOR_PEER = "WaitsForPeer"
    AGENT_FAILED = "AgentFailed"


class ConflictKind(_Extensible):
    """What this node does with a VIP that another machine has."""

    WITHHELD = "Withheld"
    """It was not announced yet, and this node does not load it."""
    HELD = "Held"
    """This node holds it."""
    OTHER = "Other"
    """A kind of a later version of kavip."""


class Capability(_Extensible):
    """What an agent can do that an earlier one cannot, where the controller must know it."""

    COMPACT_TEXT = "CompactText"
    """It reads a configuration in the compact notation."""
    PACKED_TEXT = "PackedText"
    """It reads a packed one."""
    OTHER = "Other"
    """A capability of a later version of kavip."""


class Standing(StrEnum):
    """Whether a node takes part in a static group whose agents keep the nodes current."""

    NONE = ""
    """Its agent does not keep the nodes current, or is of an earlier or a later version."""
    JOINING = "Joining"
    """It sends no adverts, and cannot become master, until the others accept them."""
    JOINED = "Joined"
    LEFT = "Left"
    """It sends no adverts any more, and its agent stops."""

    @classmethod
    def _missing_(cls, value: object) -> "Standing":  # noqa: ARG003 - Enum's signature
        return cls.NONE


class RefusedBy(StrEnum):
    """What refuses an instance: the agent, by its own rules and the facts of the node, or the node's keepalived."""

    AGENT = "agent"
    KEEPALIVED = "keepalived"

    @classmethod
    def _missing_(cls, value: object) -> "RefusedBy":  # noqa: ARG003 - Enum's signature
        return cls.AGENT


class KeepalivedReport(Wire, frozen=True, omit_defaults=False):
    """``keepalived``: the daemon; *running*: it answers."""

    version: str = ""
    running: bool = False


class AdvertErrors(Wire, frozen=True, gc=False):
    """``instances[].errors``: adverts with this VRID that keepalived did not accept, counted since it started."""

    address_list: int = 0
    authentication: int = 0
    interval: int = 0


class InstanceReport(Wire, frozen=True, gc=False, omit_defaults=False):
    """
    ``instances[]``: one VRRP instance; *transitions* to and from MASTER are counted since the daemon started.

    *virtual_ips_hash* stands for *virtual_ips* (:func:`by_hash`); "": the list is complete. *anchor*: the first address
    that it advertises.
    """

    name: _Name
    router_id: Annotated[int, Meta(ge=0, le=MAX_ROUTER_ID)] = field(name="routerID", default=0)
    family: int = 4
    state: _Word = ""
    virtual_ips: tuple[str, ...] = field(name="virtualIPs", default=())
    priority: int = 0
    last_transition: _Name = ""
    interface: _Name = ""
    transitions: int = 0
    errors: AdvertErrors = AdvertErrors()
    virtual_ips_hash: _Word = field(name="virtualIPsHash", default="")
    anchor: _Name = ""


class ExcludedReport(Wire, frozen=True, gc=False, omit_defaults=False):
    """
    ``leftOut[]``: one instance that does not run as it is wanted; *kept*: it runs on as it last ran.

    *interface*: the one that the node lacks; "": the cause is another one.
    """

    name: str
    reason: str = ""
    by: RefusedBy = RefusedBy.AGENT
    kept: bool = False
    virtual_ips: tuple[str, ...] = field(name="virtualIPs", default=())
    code: ProblemCode = ProblemCode.NONE
    interface: _Word = ""


class CheckReport(Wire, frozen=True, omit_defaults=False):
    """``checks[]``: one health check and its last answer; until the first answer it is *ok*, *since* ""."""

    name: str
    ok: bool = True
    since: str = ""
    message: str = ""


class LocalReport(Wire, frozen=True, gc=False, omit_defaults=False):
    """``locals[]``: whether a Service with ``externalTrafficPolicy: Local`` answers here; None: not known yet."""

    track: str
    ready: bool | None = None


class NodeProblem(Wire, frozen=True, gc=False, omit_defaults=False):
    """``notes[]``: a problem that stops nothing; no *message* holds :data:`SEPARATOR`."""

    code: ProblemCode
    message: str


class ConflictReport(Wire, frozen=True, gc=False, omit_defaults=False):
    """
    ``conflicts[]``: another machine claims a VIP, as this node hears on *interface*.

    The node does not know the hardware address of every node, so the machine may be one.
    """

    address: _Name
    hardware_address: _Word
    interface: _Name = ""
    since: _Name = ""
    kind: ConflictKind = ConflictKind.OTHER


class AgentState(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """
    The body of ``/state``: no password, no path, no file's text.

    *refused* and *refused_code*: why the wanted configuration does not run as a whole; *next_refused* and
    *next_refused_code*: why the node cannot switch to the next one. *note* holds the messages of *notes* in one text,
    for a controller of 0.1.0. *missing_interfaces*: those that the wanted and the next configuration name, and that the
    node lacks. *routed_pools*: the pools whose replies it routes by their gateways. *standing*: in a static group that
    follows nodes; keepalived sends adverts from *sources*, and accepts them from *peers*, or will when the node joins.
    *file_hash*: of the file of a static group. An agent of an earlier version reports no *capabilities*.
    """

    node: str = ""
    group: str
    config_hash: str = ""
    wanted_hash: str = ""
    refused: str = ""
    note: str = ""
    keepalived: KeepalivedReport = KeepalivedReport()
    instances: _Many[InstanceReport] = ()
    left_out: _Many[ExcludedReport] = ()
    checks: _Many[CheckReport] = ()
    prepared: str = ""
    next_refused: str = ""
    switch_at: str = ""
    now: str = ""
    new_password: str = ""
    locals: _Many[LocalReport] = ()
    refused_code: ProblemCode = ProblemCode.NONE
    next_refused_code: ProblemCode = ProblemCode.NONE
    notes: _Many[NodeProblem] = ()
    hardware_addresses: Annotated[tuple[_Word, ...], Meta(max_length=MOST_HARDWARE)] = ()
    conflicts: Annotated[tuple[ConflictReport, ...], Meta(max_length=MOST_CONFLICTS)] = ()
    missing_interfaces: _Many[_Word] = ()
    routed_pools: _Many[_Name] = ()
    standing: Standing = Standing.NONE
    sources: _Many[_Name] = ()
    peers: _Many[_Name] = ()
    file_hash: _Name = ""
    capabilities: _Many[Capability] = ()


def hash_of(virtual_ips: tuple[str, ...]) -> str:
    """The hash of a list of VIPs: BLAKE2b of its JSON, 128 bits in hexadecimal. No other list has it."""
    return blake2b(msgspec.json.encode(virtual_ips), digest_size=16).hexdigest()


def by_hash(state: AgentState, hasher: Callable[[tuple[str, ...]], str] = hash_of) -> AgentState:
    """*state* with hashes instead of the lists of its instances that have more than :data:`LONG_LIST` VIPs."""
    instances = tuple(
        msgspec.structs.replace(each, virtual_ips=(), virtual_ips_hash=hasher(each.virtual_ips))
        if len(each.virtual_ips) > LONG_LIST
        else each
        for each in state.instances
    )
    return msgspec.structs.replace(state, instances=instances)


def decode_state(body: bytes) -> AgentState:
    """Decode the answer of an agent of any version; raises :class:`msgspec.MsgspecError`."""
    try:
        state = msgspec.json.decode(body, type=AgentState)
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise msgspec.DecodeError("it is not UTF-8") from None
    vips = [*(each.virtual_ips for each in state.instances), *(each.virtual_ips for each in state.left_out)]
    if sum(map(len, vips)) > _MOST_VIPS:
        raise msgspec.ValidationError(f"more than {_MOST_VIPS:,} virtual IPs")
    hashes = [each.virtual_ips_hash for each in state.instances if each.virtual_ips_hash]
    if len(hashes) > len(set(hashes)):
        raise msgspec.ValidationError("two instances with the same virtual IPs")
    return _with_codes(state)


_MOST_READ: Final = 4096  # characters; the rest of a longer text is not looked at


def short_line(text: str) -> str:
    """
    *text* as a condition can hold it: the first :data:`LONGEST` printable characters, without line breaks.

    Control characters and those that change the direction of text could forge what a terminal shows.
    """
    line = " ".join(text[:_MOST_READ].split())
    return "".join(filter(str.isprintable, line))[:LONGEST]


def _with_codes(state: AgentState) -> AgentState:
    """
    *state* with the codes that an agent of 0.1.0 does not send, by the beginnings of its messages.

    A later agent sends a code with every message. This function and ``_MESSAGES`` end with kavip 1.0.0: from then on
    the reasons of an agent of 0.1.0 have no code.
    """
    messages = short_line(state.note).split(SEPARATOR)
    return msgspec.structs.replace(
        state,
        refused_code=state.refused_code or _code_of(state.refused),
        next_refused_code=state.next_refused_code or _code_of(state.next_refused),
        notes=state.notes or tuple(NodeProblem(_code_of(each), each) for each in messages if each),
        left_out=tuple(
            each if each.code else msgspec.structs.replace(each, code=_code_of(each.reason)) for each in state.left_out
        ),
    )


_MESSAGES: Final = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (r"the ConfigMap is not mounted", ProblemCode.MOUNT_UNREADABLE),
        (r"the ConfigMap holds bytes|(agent\.json|next\.conf\.gz) in the ConfigMap", ProblemCode.MOUNT_INVALID),
        (r"keepalived\.conf and agent\.json", ProblemCode.MOUNT_INVALID),
        (r"password: the Secret that", ProblemCode.PASSWORD_MISSING),
        (r"password: want", ProblemCode.PASSWORD_INVALID),
        (r"password: the Secret holds another", ProblemCode.PASSWORD_MISMATCH),
        (r"password: nobody", ProblemCode.PASSWORD_NOT_ACCEPTED),
        (r"line \d|there is no global_defs|instance \S+ stands twice", ProblemCode.CONFIG_INVALID),
        (r"(virtual_router_id|interface) is missing|virtual IP \S+ stands twice", ProblemCode.CONFIG_INVALID),
        (r"it follows a track file", ProblemCode.CONFIG_INVALID),
        (r"virtual(_router_id| IP) \S+ stands in another", ProblemCode.CONFIG_CONFLICT),
        (r"\S+ is node \S+'s own address", ProblemCode.NODE_ADDRESS),
        (r"interface \S+ does not exist|no interface of node", ProblemCode.INTERFACE_MISSING),
        (r"\S+, from which node \S+ is to speak", ProblemCode.SOURCE_ADDRESS_UNUSABLE),
        (r"VRRP goes out by", ProblemCode.SOURCE_ADDRESS_ELSEWHERE),
        (r"\S+ has no IPv4 address", ProblemCode.NO_IPV4_ADDRESS),
        (r"no instance is left", ProblemCode.NO_INSTANCE),
        (r"keepalived --config-test: ", ProblemCode.REFUSED_BY_KEEPALIVED),
        (r"keepalived --config-test |\S+ cannot check|the run directory does not hold", ProblemCode.CONFIG_TEST_FAILED),
        (r"the run directory cannot be written", ProblemCode.RUN_DIRECTORY_UNWRITABLE),
        (r"keepalived did not confirm it", ProblemCode.RELOAD_NOT_CONFIRMED),
        (r"keepalived exited", ProblemCode.KEEPALIVED_EXITED),
        (r"keepalived was killed", ProblemCode.KEEPALIVED_KILLED),
        (r"keepalived is \d|keepalived does not say its version", ProblemCode.KEEPALIVED_UNTESTED),
        (r"keepalived does not heed", ProblemCode.TRACK_FILES_IGNORED),
        (r"health check .* fails$", ProblemCode.CHECK_FAILING),
        (r"health check .* cannot be asked", ProblemCode.CHECK_NOT_RUN),
        (r"kube-proxy runs in IPVS mode without strictARP", ProblemCode.STRICT_ARP_OFF),
        (r"the agent failed", ProblemCode.AGENT_FAILED),
    )
)


def _code_of(message: str) -> ProblemCode:
    """The code of a message of 0.1.0; that of an instance is prefixed with its name in ``nextRefused``."""
    bare = re.sub(r"^instance \S+: ", "", short_line(message))
    return next((code for pattern, code in _MESSAGES if bare and pattern.match(bare)), ProblemCode.NONE)
