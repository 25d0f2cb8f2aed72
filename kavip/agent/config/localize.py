"""
Makes this node's configuration from the group's: the node's lines, its interface, the password.

The text in the ConfigMap is the same for all nodes. A line for one node begins with ``@node``, a line for all others
with ``@^node`` (keepalived's own notation); they are resolved here, so that the file shows what runs. An instance that
would harm the node (a VIP is the node's own address) or cannot work on it (an interface does not exist) is excluded. A
fault outside the instances refuses the whole configuration. No message holds the password.
"""

import hashlib
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from kavip.agent.config import validate
from kavip.agent.config.exclude import exclude, exclusions, previous_instances
from kavip.agent.config.facts import NodeFacts, interface_of, unfit
from kavip.agent.config.model import LocalizedConfig, MountedConfig, ParsedConfig, RefusedConfig
from kavip.agent.config.sources import source_notes, unusable_sources
from kavip.api.address import read_address
from kavip.api.agent import NodeProblem, ProblemCode
from kavip.memo import recent
from kavip.vrrp.instances import NO_SOURCE
from kavip.vrrp.tracking import TRACK_DIR
from kavip.vrrp.virtualips import VirtualIP

AUTHENTICATION_MARKER: Final = "# kavip: authentication"
PASSWORD: Final = re.compile(r"[A-Za-z0-9_-]{1,8}")
_CONDITION: Final = re.compile(r"( *)@(\^?)([A-Za-z0-9.-]+) (\S.*)")
_ADDRESS: Final = re.compile(r" +([0-9A-Fa-f:.]+)/([0-9]{1,3}) dev (\S+)")
_WRITTEN: Final = re.compile(r" ([0-9A-Fa-f:.]+)/[0-9]")
_INTERFACE: Final = re.compile(r"^( *interface | *[0-9A-Fa-f:.]+/[0-9]+ dev )(\S+)$")
_SOURCE: Final = "unicast_src_ip"
_PEERS: Final = "    unicast_peer {"
_NO_SOURCES: Final = frozenset(str(address) for address in NO_SOURCE.values())
_OLD_TRACK_FILE: Final = "vrrp_track_file "
_TRACK_FILE: Final = f'    file "{TRACK_DIR}/'
_UNSAFE_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")
_COMMENT: Final = re.compile(r"^# kavip: [^\n]*\n", re.MULTILINE)
_HEADER: Final = re.compile(r"# kavip: localised for \S+; configuration ([0-9a-f]*)")


def localize(
    mounted: MountedConfig, facts: NodeFacts, good: LocalizedConfig | None = None
) -> LocalizedConfig | RefusedConfig:
    """
    The configuration of this node, or why it is refused.

    A faulty instance is replaced by its version in *good*, the configuration that ran last. If that is not possible,
    the instance is excluded.
    """
    if mounted.held:
        return empty(facts.node)
    if hash_of(mounted.text) != mounted.config_hash:
        message = "keepalived.conf and agent.json in the ConfigMap do not belong together"
        return RefusedConfig(ProblemCode.MOUNT_INVALID, message)
    interface = _interface_from_ip(mounted, facts) if mounted.interface_from_ip else ""
    if mounted.interface_from_ip and not interface:
        return _without_instances(mounted, facts, _no_interface(mounted, facts))
    text = _node_text(mounted, facts, interface=interface)
    found = text if isinstance(text, RefusedConfig) else _without_faulty_instances(mounted, text, facts, good)
    if isinstance(found, RefusedConfig):
        return found
    return replace(found, notes=(*found.notes, *_absent_interfaces(mounted, facts)))


def hash_of(text: str) -> str:
    """The hash that identifies the group's *text*."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _node_text(mounted: MountedConfig, facts: NodeFacts, *, interface: str) -> str | RefusedConfig:
    """The text of *mounted* for this node, with *interface* in place of the group's unless it is ""."""
    lines = [_with_track_dir(line, facts.track_dir) for line in node_lines(mounted.text, facts.node)]
    if any(line.strip() == AUTHENTICATION_MARKER for line in lines):
        if fault := _password_fault(mounted.password):
            return fault
        lines = [part for line in lines for part in _authenticated(line, mounted.password or "")]
    if interface:
        lines = [_on_interface(line, interface, mounted.pool_interfaces) for line in lines]
    return "\n".join([_header(facts.node, mounted.config_hash, mounted.password_name), *lines])


def _without_faulty_instances(
    mounted: MountedConfig, text: str, facts: NodeFacts, good: LocalizedConfig | None
) -> LocalizedConfig | RefusedConfig:
    found = validate.examine(text, settled=good.configuration if good else ParsedConfig())
    if isinstance(found, RefusedConfig):
        return found
    unusable = unusable_sources(mounted.text, text, facts)
    if unusable and len(unusable) == len(found.instances):
        first = next(iter(unusable.values()))
        return _without_instances(mounted, facts, NodeProblem(first.code, first.message))
    previous = {name: each for name, each in previous_instances(good, facts).items() if name not in unusable}
    whole = LocalizedConfig(text, mounted.config_hash, ParsedConfig(found.instances))
    faults = {**unfit(found.instances, facts), **unusable, **found.faults}
    if len(faults) == len(found.instances) and all(map(mounted.is_left_out, faults.values())):
        return replace(empty(facts.node, config_hash=mounted.config_hash), excluded=exclusions(whole, faults))
    localized = exclude(whole, faults, previous)
    if isinstance(localized, RefusedConfig):
        return localized
    return replace(localized, notes=tuple(source_notes(localized.text, localized.configuration, facts)))


def _without_instances(mounted: MountedConfig, facts: NodeFacts, why: NodeProblem) -> LocalizedConfig:
    """A configuration with the hash of *mounted* and without instances, and the problem *why*."""
    return replace(empty(facts.node, config_hash=mounted.config_hash), notes=(why,))


def addresses_of(mounted: MountedConfig, facts: NodeFacts) -> frozenset[VirtualIP]:
    """Every address that *mounted* would add to an interface, including the addresses of refused instances."""
    interface, kept = _interface_from_ip(mounted, facts) if mounted.interface_from_ip else "", mounted.pool_interfaces
    found = _addresses(mounted.text)
    return frozenset(
        each if not interface or each.interface in kept else each._replace(interface=interface) for each in found
    )


def interface_on_node(mounted: MountedConfig, facts: NodeFacts, name: str) -> str:
    """The interface of this node for the one that *mounted* calls *name*; "" if there is none."""
    if mounted.interface_from_ip and name not in mounted.pool_interfaces:
        name = _interface_from_ip(mounted, facts)
    return name if name in facts.interfaces else ""


@recent(most=2)  # the mounted text and the installed one
def written_addresses(text: str) -> frozenset[str]:
    """The addresses of VIPs in *text*, as they are written: a fail-over of 20,000 looks each up."""
    return frozenset(_WRITTEN.findall(text))


def _addresses(text: str) -> Iterator[VirtualIP]:
    yield from filter(None, map(virtual_ip_of, text.split("\n")))


def virtual_ip_of(line: str) -> VirtualIP | None:
    """The VIP that *line* of a text configures; None if it configures none."""
    match = _ADDRESS.fullmatch(line)
    address = read_address(match[1]) if match else None
    return VirtualIP(address, int(match[2]), match[3]) if match and address else None


def _interface_from_ip(mounted: MountedConfig, facts: NodeFacts) -> str:
    """The interface of this node that ``interfaceFromIP`` selects; "" if none fits."""
    return interface_of(mounted.interface_from_ip, facts, (each.address for each in _addresses(mounted.text)))


def _no_interface(mounted: MountedConfig, facts: NodeFacts) -> NodeProblem:
    message = f"no interface of node {facts.node} is in the subnet of {mounted.interface_from_ip} (interfaceFromIP)"
    if facts.route is not None and not facts.route.direct and facts.route.interface:
        message += (
            f", and {facts.route.interface}, which reaches it through a gateway, is in the subnet of no VIP: "
            "set interfaceFromIP to an address in the network of the VIPs"
        )
    return NodeProblem(ProblemCode.INTERFACE_MISSING, message)


def _absent_interfaces(mounted: MountedConfig, facts: NodeFacts) -> Iterator[NodeProblem]:
    """What the node lacks for the first instance of the group."""
    for name in sorted(mounted.interfaces - facts.interfaces):
        message = f"interface {name} does not exist: create it, or name another one in the group"
        yield NodeProblem(ProblemCode.INTERFACE_MISSING, message)


def empty(node: str, *, config_hash: str = "") -> LocalizedConfig:
    """A valid configuration without instances."""
    router_id = _UNSAFE_NAME.sub("-", node) or "kavip"
    text = (
        f"{_header(node, config_hash, '')}\nglobal_defs {{\n    router_id {router_id}\n    max_auto_priority -1\n}}\n"
    )
    return LocalizedConfig(text, config_hash, ParsedConfig())


def read_localized(text: str) -> LocalizedConfig | None:
    """Read *text*, which an earlier :func:`localize` made; None if *text* is something else."""
    header = _HEADER.match(text)
    configuration = validate.read(text)
    if header is None or isinstance(configuration, RefusedConfig):
        return None
    return LocalizedConfig(text, header[1], configuration)


def same_for_keepalived(one: str, other: str) -> bool:
    """Whether two localised texts differ at most in comments of kavip, which say how a text came about."""
    return _COMMENT.sub("", one) == _COMMENT.sub("", other)


def _header(node: str, config_hash: str, password: str) -> str:
    named = f"; password {password}" if password else ""
    return f"# kavip: localised for {node}; configuration {config_hash}{named}"


def node_lines(text: str, node: str) -> Iterator[str]:
    """
    The lines of *text* that this node runs.

    Where the text has no source address for the node, it runs without peers, so that `unicast_fault_no_peer` keeps it
    from becoming master. The lack of a source address alone does so only up to keepalived 2.2.7.
    """
    block: list[str] = []
    for line in _resolved(text, node):
        if line.startswith("vrrp_instance "):
            yield from _without_peers_if_unlisted(block)
            block = []
        block.append(line)
    yield from _without_peers_if_unlisted(block)


def silenced(localized: LocalizedConfig) -> LocalizedConfig:
    """*localized* as a node runs it that the text does not list: it sends nothing, and is master of nothing."""
    lines = (_without_source(line) for line in localized.text.split("\n"))
    return replace(localized, text="\n".join(node_lines("\n".join(lines), "")))


def _without_source(line: str) -> str:
    if not line.startswith(f"    {_SOURCE} "):
        return line
    return f"    {_SOURCE} {NO_SOURCE[6 if ':' in line else 4]}"


def _without_peers_if_unlisted(block: list[str]) -> Iterator[str]:
    sources = {value for keyword, _, value in (line.strip().partition(" ") for line in block) if keyword == _SOURCE}
    if not sources or not sources <= _NO_SOURCES:
        yield from block
        return
    in_peers = False
    for line in block:
        keyword = line.strip().partition(" ")[0]
        in_peers = line == _PEERS or (in_peers and keyword != "}")
        if keyword != "unicast_ttl" and (line == _PEERS or not in_peers):  # keepalived refuses the former without peers
            yield line


def _resolved(text: str, node: str) -> Iterator[str]:
    for line in text.split("\n"):
        match = _CONDITION.fullmatch(line)
        if match is None:
            yield line
        elif (match[3] == node) != bool(match[2]):
            yield match[1] + match[4]


def _with_track_dir(line: str, track_dir: str) -> str:
    """
    *line*, with the directory of this agent if the line is part of a ``track_file`` block.

    The group's text has keepalived's old keyword ``vrrp_track_file``, because earlier agents need it. keepalived logs
    at every reload, once a file, that this keyword is deprecated. So the new keyword replaces it.
    """
    if line.startswith(_OLD_TRACK_FILE):
        return line.removeprefix("vrrp_")
    if line.startswith(_TRACK_FILE):
        return f'    file "{track_dir}/{line.removeprefix(_TRACK_FILE)}'
    return line


def _on_interface(line: str, interface: str, kept: Collection[str]) -> str:
    """*line* with *interface* in place of the one that it names, unless that is one of those *kept* for addresses."""
    match = _INTERFACE.fullmatch(line)
    if match is None or (match[2] in kept and match[1].endswith(" dev ")):
        return line
    return match[1] + interface


def _authenticated(line: str, password: str) -> Iterator[str]:
    if line.strip() != AUTHENTICATION_MARKER:
        yield line
        return
    indent = line[: len(line) - len(line.lstrip())]
    yield f"{indent}authentication {{"
    yield f"{indent}    auth_type PASS"
    yield f"{indent}    auth_pass {password}"
    yield f"{indent}}}"


def _password_fault(password: str | None) -> RefusedConfig | None:
    """Why *password* cannot be used. A controller of 0.1.0 recognises the first message by its beginning."""
    if password is None:
        message = "password: the Secret that passwordAuth names is not mounted, or lacks the key"
        return RefusedConfig(ProblemCode.PASSWORD_MISSING, message)
    if not PASSWORD.fullmatch(password):
        message = "password: want 1 to 8 characters of A-Z a-z 0-9 _ - in the Secret, and no line break at the end"
        return RefusedConfig(ProblemCode.PASSWORD_INVALID, message)
    return None
