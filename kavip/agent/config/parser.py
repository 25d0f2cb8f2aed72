"""
Reads the blocks of a configuration in the shape that kavip writes.

That is one keyword a line, and a brace at the end of a line or alone on one. A faulty block is read to its end as well:
the result is what could be read of the instance, and its first fault.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from kavip.agent.config.blocks import INSTANCE, OPEN, Block
from kavip.agent.config.model import DEFAULT_PRIORITY, ConfiguredInstance
from kavip.api.address import BITS, read_address
from kavip.names import MAX_ROUTER_ID
from kavip.vrrp.tokens import MAX_LINE
from kavip.vrrp.tracking import TRACK_NAME, Track
from kavip.vrrp.virtualips import VirtualIP

_NOT_ASCII: Final = re.compile(r"[^\x20-\x7e]")
_SPECIAL: Final = re.compile(r"[\\$~!#]")  # escapes, definitions, repetitions, comments
_WORD: Final = re.compile(r"[a-z][a-z0-9_]*")
_INLINE: Final = re.compile(r"[a-z0-9_]+ \{( [^{}\"]+)? \}")
_TRACK_FILES: Final = frozenset({"track_file", "vrrp_track_file"})
_BLOCKS: Final = frozenset({"global_defs", INSTANCE}) | _TRACK_FILES
_PEERS: Final = "unicast_peer"
_ADDRESS_BLOCKS: Final = frozenset({"virtual_ipaddress", "virtual_ipaddress_excluded"})
_NEVER_INLINE: Final = _ADDRESS_BLOCKS | _TRACK_FILES | {_PEERS}
_PATH: Final = re.compile(r'"(/[A-Za-z0-9_.-]+)+"')
_WEIGHT: Final = re.compile(r"0|-?[1-9][0-9]{0,2}")
_MAX_WEIGHT: Final = 253
_DENIED: Final = frozenset(
    {
        "config_save_dir",  # runs a shell, and does so while a file is being checked
        "data_use_instance",  # these move the files by which the agent finds the daemon
        "instance",
        "json_dump_file",
        "net_namespace",
        "net_namespace_ipvs",
        "reload_check_config",
        "reload_file",
        "reload_time_file",
        "state_dump_file",
        "stats_dump_file",
        "tmp_config_directory",
        "use_pid_dir",
    }
)


@dataclass(slots=True)
class InstanceDraft:
    """A ``vrrp_instance`` while it is being read: the values that the agent compares, as keepalived would take them."""

    name: str
    router_id: int = 0
    interface: str = ""
    priority: int = DEFAULT_PRIORITY
    virtual_ips: list[VirtualIP] = field(default_factory=list)
    tracks: list[Track] = field(default_factory=list)
    has_peers: bool = False

    def finished(self) -> ConfiguredInstance:
        """The instance, as far as it was read."""
        return ConfiguredInstance(
            self.name, self.router_id, self.interface, self.priority, tuple(self.virtual_ips), tuple(self.tracks)
        )

    def fault(self) -> str:
        """What is wrong with the instance as a whole; "" if nothing is."""
        if not self.router_id:
            return "virtual_router_id is missing"
        if not self.interface:
            return "interface is missing"
        twice = first_duplicate([str(each.address) for each in self.virtual_ips])
        return f"virtual IP {twice} stands twice" if twice else ""

    def take_keyword(self, words: list[str]) -> str:
        """Take a keyword with its values; the fault, or ""."""
        keyword, *values = words
        match keyword:
            case "interface":
                if len(values) != 1:
                    return "interface wants one name"
                if self.interface:
                    return "interface stands twice"
                self.interface = values[0]
            case "virtual_router_id":
                self.router_id = _number(values, 1, MAX_ROUTER_ID)
                return "" if self.router_id else f"virtual_router_id wants a number from 1 to {MAX_ROUTER_ID}"
            case "priority":
                self.priority = _number(values, 1, 254)
                return "" if self.priority else "priority wants a number from 1 to 254"
        return ""

    def take_block(self, keyword: str) -> str:
        """Take the beginning of a block; the fault, or ""."""
        if keyword == _PEERS and self.has_peers:
            return f"{_PEERS} stands twice"
        self.has_peers |= keyword == _PEERS
        return ""

    def take_address(self, words: list[str]) -> str:
        """Take a line of an address block; the fault, or ""."""
        text, *options = words
        bare, slash, length = text.partition("/")
        address = read_address(bare)
        if address is None:
            return "not an IP address"
        prefix = _number([length], 1, BITS[address.family]) if slash else BITS[address.family]
        if not prefix:
            return f"prefix length wants a number from 1 to {BITS[address.family]}"
        named = options[options.index("dev") + 1 :] if "dev" in options else []
        interface = named[0] if named else self.interface
        if not interface:
            return "an address without an interface"
        self.virtual_ips.append(VirtualIP(address, prefix, interface))
        return ""

    def take_track_file(self, words: list[str]) -> str:
        """Take a line of the block of track files; the fault, or ""."""
        match words:
            case (name, "weight", weight) if _WEIGHT.fullmatch(weight) and abs(int(weight)) <= _MAX_WEIGHT:
                self.tracks.append(Track(name, int(weight)))
                return ""
        return f"a track file wants a name and a weight from -{_MAX_WEIGHT} to {_MAX_WEIGHT}"


@dataclass(frozen=True, slots=True)
class LineFault:
    """What is wrong in line *line* of a block, counted from 1."""

    line: int
    message: str


class BlockParser:
    """
    Reads blocks line by line.

    *drafts* are the instances, *keywords* the keywords that opened a block, *tracks* the track files that are defined.
    """

    def __init__(self) -> None:
        self.drafts: list[InstanceDraft] = []
        self.keywords: set[str] = set()
        self.tracks: set[str] = set()
        self._open: list[str] = []
        self._inside = ""  # the instance whose block is being read
        self._track = ""

    def parse(self, block: Block) -> LineFault | None:
        """Read *block* to its end; its first fault."""
        first: LineFault | None = None
        self._inside = block.name
        for number, line in enumerate(block.lines, start=1):
            ended = block.name and number > 1 and not self._open
            fault = "a line behind the end of the block" if ended else _lexical_fault(line) or self._take(line)
            if fault and first is None:
                first = LineFault(number, fault)
        if self._open and first is None:
            first = LineFault(len(block.lines), f"a block {self._open[-1]} is never closed")
        return first

    def _take(self, line: str) -> str:
        """Read one line without lexical fault; the fault, or ""."""
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            return ""
        if stripped == "}":
            return "" if self._open and self._open.pop() else "closes a block that is not open"
        keyword = stripped.split(maxsplit=1)[0]
        if keyword.startswith("include") or keyword in _DENIED:
            return "a keyword that kavip never writes"
        if match := OPEN.fullmatch(stripped):
            return self._enter(match[1], match[2] or "")
        if "{" in stripped or "}" in stripped:
            inner = stripped.partition("{")[2].split()
            sound = _INLINE.fullmatch(stripped) and self._open and not inner[0].startswith("include")
            sound = sound and keyword not in _NEVER_INLINE
            return "" if sound else "a brace that is not at the end of the line"
        if not self._open:
            return "a keyword outside a block"
        if len(self._open) == 1 and not _WORD.fullmatch(keyword):
            return "not a keyword"
        return self._keyword(stripped.split())

    def _enter(self, keyword: str, name: str) -> str:
        if not self._open and keyword not in _BLOCKS:
            return "a block that kavip never writes"
        if not self._open and keyword == INSTANCE:
            if not name:
                return "vrrp_instance without a name"
            if self._inside != name:
                return "vrrp_instance does not begin its line"
            self.drafts.append(InstanceDraft(name))
        if not self._open and keyword in _TRACK_FILES:
            if not TRACK_NAME.fullmatch(name):
                return "a track file without a name of kavip's"
            self.tracks.add(name)
            self._track = name
        fault = self.drafts[-1].take_block(keyword) if self._open == [INSTANCE] else ""
        self._open.append(keyword)
        self.keywords.add(keyword)
        return fault

    def _keyword(self, words: list[str]) -> str:
        if self._open[0] in _TRACK_FILES:  # keepalived also accepts keywords here that overwrite files
            path = words[1] if len(words) == 2 and words[0] == "file" else ""
            return "" if _PATH.fullmatch(path) and path.endswith(f'/{self._track}"') else "not a track file of kavip's"
        if self._open[0] != INSTANCE:
            return ""
        draft = self.drafts[-1]
        if len(self._open) == 1:
            return draft.take_keyword(words)
        if self._open[1] in _ADDRESS_BLOCKS:
            return draft.take_address(words)
        return draft.take_track_file(words) if self._open[1] in _TRACK_FILES else ""


def first_duplicate(values: list[str]) -> str:
    """The first of *values* that stands there twice; "" if none does."""
    seen: set[str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return ""


def _number(values: list[str], lowest: int, highest: int) -> int:
    """The number that is the only one of *values*, or 0, which no keyword allows."""
    if len(values) != 1 or not re.fullmatch(r"[1-9][0-9]{0,3}", values[0]):
        return 0
    number = int(values[0])
    return number if lowest <= number <= highest else 0


def _lexical_fault(line: str) -> str:
    """What no line may hold, wherever it stands."""
    if _NOT_ASCII.search(line):
        return "a byte that is not printable ASCII"
    if len(line) > MAX_LINE:
        return f"longer than {MAX_LINE} bytes"
    stripped = line.strip()
    if stripped.startswith("#"):  # the whole line is a comment; special characters inside mean nothing to keepalived
        return "" if "\\" not in stripped else "a backslash"
    if _SPECIAL.search(stripped):
        return "a character that keepalived interprets"
    if stripped.startswith("@"):
        return "a condition that does not name a node"
    if stripped.count('"') % 2:
        return "an unbalanced quote"
    return ""
