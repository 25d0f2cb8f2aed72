"""
``agent.json`` in the ConfigMap of a group: what the controller tells the agents besides the text of keepalived.

Both ends use these types, as they do with ``/state`` (:mod:`kavip.api.agent`). Versions mix during a roll-out, and with
``agentImage`` for years. So no field is removed or changes its meaning; both ends ignore unknown fields, and missing
ones have defaults.
"""

from functools import cache

import msgspec
from msgspec.structs import FieldInfo

from kavip.api.group import Check
from kavip.api.meta import Wire, field


class LocalTrack(Wire, frozen=True):
    """
    ``locals[]``: what the track file *track* follows: whether a Service with ``externalTrafficPolicy: Local`` answers.

    kube-proxy's health port *port* says so on each node; for a Service without such a port it answers on *nodes*.
    """

    track: str
    port: int = 0
    nodes: tuple[str, ...] = ()


class DetectionConfig(Wire, frozen=True):
    """
    ``conflictDetection``: which VIPs another machine on the LAN may have, and which machines are nodes.

    *probe*: the VIPs that no published text had before, as spans (:mod:`kavip.api.spans`): a node asks the LAN before
    it loads one. *off*: the VIPs for which no node asks or listens. *hardware_addresses*: of the nodes.
    """

    probe: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    hardware_addresses: tuple[str, ...] = ()


class ReturnRoute(Wire, frozen=True):
    """
    ``routes[]``: the way back of replies of one *pool* (:mod:`kavip.api.returnroute`).

    Connections to one of *addresses*, spans (:mod:`kavip.api.spans`), that enter by *interface* are answered by
    *gateways*, one of a family, in the routing table number *table*.
    """

    pool: str
    interface: str
    table: int
    gateways: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


class RevisionConfig(Wire, frozen=True):
    """
    What belongs to one keepalived text.

    *password* is the file below the folder of all passwords: key *secret_key* of Secret *secret*. *renewals* counts how
    often all nodes have switched to another content of that key. *renewed*: the text runs with the content that is
    mounted now, whichever the nodes run. *pool_interfaces*: those that VIPPools name, which a node may lack, and which
    stay with ``interfaceFromIP``. *routes*: by pool.
    """

    config_hash: str
    interface_from_ip: str = field(name="interfaceFromIP", default="")
    secret: str = ""
    secret_key: str = ""
    password: str = ""
    renewals: int = 0
    renewed: bool = False
    pool_interfaces: tuple[str, ...] = ()
    routes: tuple[ReturnRoute, ...] = ()


class FollowedNodes(Wire, frozen=True):
    """
    ``follow``: which Nodes the agents of a static group keep as its nodes.

    *selector*: the labels of these Nodes, as the API takes them. *first*: the node that ranks before all others until
    its agent stops.
    """

    selector: str = ""
    first: str = ""


class AgentConfig(RevisionConfig, frozen=True):
    """
    ``agent.json``: what the agent needs in addition to keepalived's text.

    *next* is the text that all nodes switch to at *switch_at*; *next_hash* names it. *static*: a static pod, without a
    controller; with *follow* its agents keep its nodes current. The controller reads its own record back: *tries* and
    *blame* of switches that were called off, and *leads* of a take-over from keepalived-operator. Without
    *conflict_detection* agents neither ask nor listen. *interfaces*: those that the group names, as long as its text
    has no instance that names them.
    """

    group: str = ""
    authentication: bool = False
    static: bool = False
    next: RevisionConfig | None = None
    next_hash: str = ""
    switch_at: str = ""
    tries: int = 0
    blame: str = ""
    leads: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    locals: tuple[LocalTrack, ...] = ()
    conflict_detection: DetectionConfig | None = None
    follow: FollowedNodes | None = None
    interfaces: tuple[str, ...] = ()


def encode_config(config: AgentConfig) -> str:
    """The text of ``agent.json``: sorted, without defaults, the same for the same *config*."""
    always = {"authentication": False, "interfaceFromIP": "", "switchAt": ""}
    return msgspec.json.encode({**always, **_sparse(config)}, order="sorted").decode()


def decode_config(text: str | bytes) -> AgentConfig | None:
    """The content of ``agent.json``; None if *text* is not one."""
    try:
        return msgspec.json.decode(text, type=AgentConfig)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class _Named(Wire, frozen=True):
    """The part of ``agent.json`` that every version writes."""

    group: str = ""


def named_group(text: str | bytes) -> str:
    """The group in ``agent.json``, also in that of another version; "" if *text* is not one."""
    try:
        return msgspec.json.decode(text, type=_Named).group
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""


def _sparse(value: msgspec.Struct) -> dict[str, object]:
    """*value* without defaults; msgspec compares by identity, so it keeps an empty string that was decoded."""
    found = ((each, getattr(value, each.name)) for each in _fields(type(value)))
    return {each.encode_name: _plain(content) for each, content in found if content != each.default}


@cache  # msgspec evaluates the annotations of the class each time
def _fields(kind: type[msgspec.Struct]) -> tuple[FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _plain(content: object) -> object:
    if isinstance(content, tuple):
        return [_plain(each) for each in content]
    return _sparse(content) if isinstance(content, msgspec.Struct) else content
