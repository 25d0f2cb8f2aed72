"""
From the group's configuration to this node's: the lines of this node, its interface, the password.

The text in the ConfigMap is the same for all nodes. Lines for one node begin with ``@node``, lines for all others with
``@^node`` (keepalived's own notation); they are resolved here, so that the file says what runs. A configuration that
would harm the node (an address of its own among the VIPs) or cannot work on it (an interface that is not there) is
refused. No message holds the password.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from kavip.agent import grammar
from kavip.agent.grammar import Configuration, Refused
from kavip.api.address import BITS, Address, read_address
from kavip.vrrp.virtualips import VirtualIP

AUTHENTICATION_MARKER: Final = "# kavip: authentication"
KUBE_PROXY_INTERFACE: Final = "kube-ipvs0"
"""kube-proxy's IPVS mode keeps every Service address here, ours too: it is nobody's own address, and never stale."""

_LOOPBACK: Final = "lo"
_PASSWORD: Final = re.compile(r"[A-Za-z0-9_-]{1,8}")
_CONDITION: Final = re.compile(r"( *)@(\^?)([A-Za-z0-9.-]+) (\S.*)")
_INTERFACE: Final = re.compile(r"^( *interface | *[0-9A-Fa-f:.]+/[0-9]+ dev )\S+$")
_UNSAFE_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")
_HEADER: Final = re.compile(r"# kavip: localised for \S+; configuration ([0-9a-f]*)")


@dataclass(frozen=True, slots=True)
class Mounted:
    """What the controller gave this node, as read from the mount; *password* is None where there is none."""

    text: str
    config_hash: str
    group: str = ""
    interface_from_ip: str = ""
    authentication: bool = False
    switch_at: str = ""
    password: str | None = None

    def __repr__(self) -> str:
        """Say which configuration this is, and nothing that stands in it."""
        return f"Mounted({self.group} {self.config_hash})"


@dataclass(frozen=True, slots=True)
class Held:
    """An address on an interface of this node; *added* says that it looks as if keepalived had put it there."""

    virtual_ip: VirtualIP
    added: bool = False

    @property
    def address(self) -> Address:
        """The address alone."""
        return self.virtual_ip.address


@dataclass(frozen=True, slots=True)
class Facts:
    """What this node is: its interfaces and addresses, and the VIPs that kavip may have put there."""

    node: str
    address: Address | None = None
    interfaces: frozenset[str] = frozenset()
    held: tuple[Held, ...] = ()
    ours: frozenset[VirtualIP] = frozenset()


@dataclass(frozen=True, slots=True)
class Localized:
    """A configuration for this node, ready to be checked. *note* says why the node has no part in it."""

    text: str
    config_hash: str
    configuration: Configuration
    note: str = ""

    def __repr__(self) -> str:
        """Say which configuration this is, and nothing that stands in it."""
        return f"Localized({self.config_hash}, {len(self.configuration.instances)} instances)"


def localize(mounted: Mounted, facts: Facts) -> Localized | Refused:
    """Make the configuration of this node, or say why not."""
    if hashlib.sha256(mounted.text.encode()).hexdigest()[:16] != mounted.config_hash:
        return Refused("keepalived.conf and agent.json in the ConfigMap do not belong together")
    interface = ""
    if mounted.interface_from_ip:
        interface = interface_of(mounted.interface_from_ip, facts)
        if not interface:
            note = (
                f"no interface of node {facts.node} is in the subnet of {mounted.interface_from_ip} (interfaceFromIP)"
            )
            return replace(empty(facts.node, config_hash=mounted.config_hash), note=note)
    lines = list(_resolved(mounted.text, facts.node))
    if any(line.strip() == AUTHENTICATION_MARKER for line in lines):
        if fault := _password_fault(mounted.password):
            return Refused(fault)
        lines = [part for line in lines for part in _authenticated(line, mounted.password or "")]
    if interface:
        lines = [_INTERFACE.sub(rf"\g<1>{interface}", line) for line in lines]
    text = "\n".join([_header(facts.node, mounted.config_hash), *lines])
    configuration = grammar.read(text)
    if isinstance(configuration, Refused):
        return configuration
    fault = _own_address(configuration, facts) or _missing_interface(configuration, facts)
    return Refused(fault) if fault else Localized(text, mounted.config_hash, configuration)


def empty(node: str, *, config_hash: str = "") -> Localized:
    """A valid configuration that holds no instance."""
    router_id = _UNSAFE_NAME.sub("-", node) or "kavip"
    text = f"{_header(node, config_hash)}\nglobal_defs {{\n    router_id {router_id}\n    max_auto_priority -1\n}}\n"
    return Localized(text, config_hash, Configuration())


def recalled(text: str) -> Localized | None:
    """The configuration that was localised to *text* at another time; None when it is not one."""
    header = _HEADER.match(text)
    configuration = grammar.read(text)
    if header is None or isinstance(configuration, Refused):
        return None
    return Localized(text, header[1], configuration)


def interface_of(text: str, facts: Facts) -> str:
    """The interface that holds the address *text*, or whose subnet does, the narrowest first; "" if there is none."""
    wanted = read_address(text)
    if wanted is None:
        return ""
    found = [
        (-each.virtual_ip.prefix, each.virtual_ip.interface)
        for each in facts.held
        if each.virtual_ip.interface not in (_LOOPBACK, KUBE_PROXY_INTERFACE)
        and each.virtual_ip not in facts.ours
        and (each.address == wanted or _in_subnet(wanted, each.virtual_ip))
    ]
    return min(found)[1] if found else ""


def leftovers(facts: Facts, *, wanted: frozenset[VirtualIP], running: frozenset[VirtualIP]) -> tuple[VirtualIP, ...]:
    """
    The addresses on this node that a daemon left behind: ours or *wanted*, and not among those that one is *running*.

    Without a record (the pod was replaced) an address that merely equals a wanted one counts only if it looks added.
    The node's own address never counts.
    """
    found = (
        each.virtual_ip
        for each in facts.held
        if (each.virtual_ip in facts.ours or (each.virtual_ip in wanted and each.added))
        and each.virtual_ip not in running
        and each.address != facts.address
        and each.virtual_ip.interface != KUBE_PROXY_INTERFACE
    )
    return tuple(sorted(found))


def _header(node: str, config_hash: str) -> str:
    return f"# kavip: localised for {node}; configuration {config_hash}"


def _resolved(text: str, node: str) -> Iterator[str]:
    """The lines of *text* that this node runs."""
    for line in text.split("\n"):
        match = _CONDITION.fullmatch(line)
        if match is None:
            yield line
        elif (match[3] == node) != bool(match[2]):
            yield match[1] + match[4]


def _authenticated(line: str, password: str) -> Iterator[str]:
    if line.strip() != AUTHENTICATION_MARKER:
        yield line
        return
    indent = line[: len(line) - len(line.lstrip())]
    yield f"{indent}authentication {{"
    yield f"{indent}    auth_type PASS"
    yield f"{indent}    auth_pass {password}"
    yield f"{indent}}}"


def _password_fault(password: str | None) -> str:
    if password is None:
        return "password: the Secret that passwordAuth names is not mounted, or lacks the key"
    if not _PASSWORD.fullmatch(password):
        return "password: want 1 to 8 characters of A-Z a-z 0-9 _ - in the Secret, and no line break at the end"
    return ""


def _own_address(configuration: Configuration, facts: Facts) -> str:
    """Name a VIP that is this node's own: ``--config-test`` passes it, and the daemon deletes the address."""
    wanted = configuration.virtual_ips
    own = {
        each.address: each.virtual_ip.interface
        for each in facts.held
        if each.virtual_ip.interface != KUBE_PROXY_INTERFACE
        and each.virtual_ip not in facts.ours
        and not (each.virtual_ip in wanted and each.added)
    }
    if facts.address:
        own.setdefault(facts.address, "its InternalIP")
    for instance in configuration.instances:
        for virtual_ip in instance.virtual_ips:
            if place := own.get(virtual_ip.address):
                return (
                    f"instance {instance.name}: {virtual_ip.address} is node {facts.node}'s own address ({place}),"
                    " which keepalived would take away: give the Service another address"
                )
    return ""


def _missing_interface(configuration: Configuration, facts: Facts) -> str:
    for name in sorted(configuration.interfaces - facts.interfaces):
        return f"interface {name} does not exist on node {facts.node}; set interface or interfaceFromIP of the group"
    return ""


def _in_subnet(wanted: Address, virtual_ip: VirtualIP) -> bool:
    if wanted.family != virtual_ip.address.family or virtual_ip.prefix == BITS[wanted.family]:
        return False
    shift = BITS[wanted.family] - virtual_ip.prefix
    return wanted.value >> shift == virtual_ip.address.value >> shift
