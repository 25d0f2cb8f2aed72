"""
From the group's configuration to this node's: the lines of this node, its interface, the password.

The text in the ConfigMap is the same for all nodes. Lines for one node begin with ``@node``, lines for all others with
``@^node`` (keepalived's own notation); they are resolved here, so that the file says what runs. A configuration that
would harm the node (an address of its own among the VIPs) or cannot work on it (an interface that is not there) is
refused: the instance at fault, or all of it where the fault is nobody's own. No message holds the password.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kavip.agent.config import validate
from kavip.agent.config.blocks import split
from kavip.agent.config.exclude import spares_of, without
from kavip.agent.config.facts import Facts, interface_of, unfit
from kavip.agent.config.model import Configuration, Fault, Localized, Refused
from kavip.api.address import read_address
from kavip.api.agent import LocalTrack
from kavip.api.group import Check
from kavip.vrrp.tracking import TRACK_DIR
from kavip.vrrp.virtualips import VirtualIP

AUTHENTICATION_MARKER: Final = "# kavip: authentication"
PASSWORD: Final = re.compile(r"[A-Za-z0-9_-]{1,8}")
_CONDITION: Final = re.compile(r"( *)@(\^?)([A-Za-z0-9.-]+) (\S.*)")
_ADDRESS: Final = re.compile(r" +([0-9A-Fa-f:.]+)/([0-9]{1,3}) dev (\S+)")
_INTERFACE: Final = re.compile(r"^( *interface | *[0-9A-Fa-f:.]+/[0-9]+ dev )\S+$")
_OLD_TRACK_FILE: Final = "vrrp_track_file "
_TRACK_FILE: Final = f'    file "{TRACK_DIR}/'
_SOURCE: Final = r"^ +@{node} unicast_src_ip (\S+)$"
_UNSAFE_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")
_SPEAKS: Final = re.compile(r"^    interface (\S+)$(?:\n    .*)*\n    unicast_src_ip (\S+)$", re.MULTILINE)
_HEADER: Final = re.compile(r"# kavip: localised for \S+; configuration ([0-9a-f]*)")


@dataclass(frozen=True, slots=True)
class Mounted:
    """
    What the controller gave this node, as read from the mount; *password* is None where there is none.

    *password_name* says which it is, and nothing of it. *held*: why the node runs nothing for now. *is_static*: no
    controller is there. *next*: what comes at an instant that is announced; *is_next*: that is this one.
    """

    text: str
    config_hash: str
    group: str = ""
    interface_from_ip: str = ""
    authentication: bool = False
    is_static: bool = False
    checks: tuple[Check, ...] = ()
    locals: tuple[LocalTrack, ...] = ()
    password: str | None = None
    password_name: str = ""
    held: str = ""
    next: "Next | None" = None
    is_next: bool = False

    def __repr__(self) -> str:
        """Say which configuration this is, and nothing that stands in it."""
        return f"Mounted({self.group} {self.config_hash})"


@dataclass(frozen=True, slots=True)
class Next:
    """What all nodes of the group switch to *at* one instant, once it is announced; *digest* is its name."""

    digest: str
    mounted: Mounted | Refused
    at: str = ""

    def __repr__(self) -> str:
        """Say which configuration this is, and nothing that stands in it."""
        return f"Next({self.digest}, {self.at})"


def localize(mounted: Mounted, facts: Facts, good: Localized | None = None) -> Localized | Refused:
    """
    Make the configuration of this node, or say why not.

    An instance with a fault of its own is left out; as it stands in *good*, the last that ran, it stays if it can.
    """
    if mounted.held:
        return empty(facts.node)
    if hashlib.sha256(mounted.text.encode()).hexdigest()[:16] != mounted.config_hash:
        return Refused("keepalived.conf and agent.json in the ConfigMap do not belong together")
    interface = ""
    if mounted.interface_from_ip:
        interface = _reaching(mounted, facts)
        if not interface:
            note = (
                f"no interface of node {facts.node} is in the subnet of {mounted.interface_from_ip} (interfaceFromIP)"
                f"{_roundabout(facts)}"
            )
            return replace(empty(facts.node, config_hash=mounted.config_hash), note=note)
    lines = [_placed(line, facts.track_dir) for line in _resolved(mounted.text, facts.node)]
    if any(line.strip() == AUTHENTICATION_MARKER for line in lines):
        if fault := _password_fault(mounted.password):
            return Refused(fault)
        lines = [part for line in lines for part in _authenticated(line, mounted.password or "")]
    if interface:
        lines = [_INTERFACE.sub(rf"\g<1>{interface}", line) for line in lines]
    text = "\n".join([_header(facts.node, mounted.config_hash, mounted.password_name), *lines])
    found = validate.examine(text, settled=good.configuration if good else Configuration())
    if isinstance(found, Refused):
        return found
    unfits = {name: Fault(why) for name, why in unfit(found.instances, facts).items()}
    mute = _mute(mounted.text, text, facts)
    if mute and len(mute) == len(found.instances):
        return replace(empty(facts.node, config_hash=mounted.config_hash), note=next(iter(mute.values())))
    unfits |= {name: Fault(why) for name, why in mute.items()}
    spares = {name: each for name, each in spares_of(good, facts).items() if name not in mute}
    whole = Localized(text, mounted.config_hash, Configuration(found.instances))
    kept = without(whole, {**unfits, **found.faults}, spares)
    if isinstance(kept, Refused) or kept.note:
        return kept
    return replace(kept, note="; ".join(filter(None, (_astray(kept.text, facts), _voiceless(kept, facts)))))


def strays(following: Localized, good: Localized | None, facts: Facts) -> str:
    """Why *following* may not be heard by other nodes, where *good*, which runs, is; "" where there is no reason."""
    return "" if good is not None and _astray(good.text, facts) else _astray(following.text, facts)


def _astray(text: str, facts: Facts) -> str:
    """
    What is to be said where unicast leaves by another interface than the one with the address that it comes from.

    Other nodes may not hear it, and be masters as well; that depends on the network.
    """
    places: dict[str, set[str]] = {}
    for each in facts.held:
        places.setdefault(str(each.address), set()).add(each.virtual_ip.interface)
    for match in _SPEAKS.finditer(text):
        interface, source = match[1], match[2]
        if interface not in places.get(source, {interface}):
            there = min(places[source])
            return (
                f"VRRP goes out by {interface}, but {source}, from which it is sent, is on {there}: other "
                f"nodes may not hear it, so let spec.vrrpInterface name {there}, or set unicastEnabled: false"
            )
    return ""


def _voiceless(found: Localized, facts: Facts) -> str:
    """What is to be said where multicast has no IPv4 address to come from: keepalived is in FAULT, and says no word."""
    speaking = {each.virtual_ip.interface for each in facts.held if each.address.family == 4}
    mute = {each.name for each in found.configuration.instances if each.family == 4 and each.interface not in speaking}
    for block in split(found.text) if mute else ():
        if block.name in mute and " unicast_src_ip " not in block.text:
            interface = next(each.interface for each in found.configuration.instances if each.name == block.name)
            return (
                f"{interface} has no IPv4 address, from which VRRP could be sent for VIPs of IPv4, so keepalived is in "
                "FAULT: give it one, or let spec.vrrpInterface name an interface that has one"
            )
    return ""


def _mute(shared: str, text: str, facts: Facts) -> Mapping[str, str]:
    """
    The instances of *text* that would speak from an address that the node does not have (any more), and why.

    keepalived notices that only when it starts: until then it stays master of VIPs that it cannot answer for. From an
    address that the kernel still doubts it cannot speak, and if it began with one it would be in FAULT ever after.
    """
    doubts = {each.address: each.doubt for each in facts.held}
    found = re.findall(_SOURCE.format(node=re.escape(facts.node)), shared, re.MULTILINE)
    gone = {
        text: f"{source}, from which node {facts.node} is to speak, {why}"
        for text in dict.fromkeys(found)
        if (source := read_address(text)) and (why := doubts.get(source, "is on none of its interfaces"))
    }
    return {
        block.name: why
        for block in split(text)
        for source, why in gone.items()
        if block.name and f" unicast_src_ip {source}\n" in block.text
    }


def named(mounted: Mounted, facts: Facts) -> frozenset[VirtualIP]:
    """Every address that *mounted* would put on an interface, also where it, or an instance of it, is refused."""
    interface = _reaching(mounted, facts) if mounted.interface_from_ip else ""
    return frozenset(each._replace(interface=interface or each.interface) for each in _addresses(mounted.text))


def _addresses(text: str) -> Iterator[VirtualIP]:
    for match in map(_ADDRESS.fullmatch, text.split("\n")):
        if match and (address := read_address(match[1])):
            yield VirtualIP(address, int(match[2]), match[3])


def _reaching(mounted: Mounted, facts: Facts) -> str:
    """The interface of this node by ``interfaceFromIP``."""
    return interface_of(mounted.interface_from_ip, facts, (each.address for each in _addresses(mounted.text)))


def _roundabout(facts: Facts) -> str:
    """Why the kernel's route to the address of ``interfaceFromIP`` does not help, where there is one."""
    if facts.route is None or facts.route.direct or not facts.route.interface:
        return ""
    return (
        f", and {facts.route.interface}, from which a gateway reaches it, is in the subnet of no VIP: "
        "name an address of the network that the VIPs are in"
    )


def empty(node: str, *, config_hash: str = "") -> Localized:
    """A valid configuration that holds no instance."""
    router_id = _UNSAFE_NAME.sub("-", node) or "kavip"
    text = (
        f"{_header(node, config_hash, '')}\nglobal_defs {{\n    router_id {router_id}\n    max_auto_priority -1\n}}\n"
    )
    return Localized(text, config_hash, Configuration())


def recalled(text: str) -> Localized | None:
    """The configuration that was localised to *text* at another time; None when it is not one."""
    header = _HEADER.match(text)
    configuration = validate.read(text)
    if header is None or isinstance(configuration, Refused):
        return None
    return Localized(text, header[1], configuration)


def alike(one: str, other: str) -> bool:
    """Whether two localised texts are the same to keepalived: the first line only says what it was made from."""
    return one.partition("\n")[2] == other.partition("\n")[2]


def _header(node: str, config_hash: str, password: str) -> str:
    named = f"; password {password}" if password else ""
    return f"# kavip: localised for {node}; configuration {config_hash}{named}"


def _resolved(text: str, node: str) -> Iterator[str]:
    """The lines of *text* that this node runs."""
    for line in text.split("\n"):
        match = _CONDITION.fullmatch(line)
        if match is None:
            yield line
        elif (match[3] == node) != bool(match[2]):
            yield match[1] + match[4]


def _placed(line: str, track_dir: str) -> str:
    """
    *line*, with the folder of this agent where it names one of a track file.

    The group's text has keepalived's old keyword, which agents of earlier versions take; keepalived itself says at
    every reload, once for each file, that it is deprecated.
    """
    if line.startswith(_OLD_TRACK_FILE):
        return line.removeprefix("vrrp_")
    if line.startswith(_TRACK_FILE):
        return f'    file "{track_dir}/{line.removeprefix(_TRACK_FILE)}'
    return line


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
    if not PASSWORD.fullmatch(password):
        return "password: want 1 to 8 characters of A-Z a-z 0-9 _ - in the Secret, and no line break at the end"
    return ""
