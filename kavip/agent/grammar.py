"""
The shape of the configurations that kavip writes: one keyword per line, blocks opened and closed on lines of their own.

keepalived's own parser is far wider: includes, definitions, repetitions, conditions, escapes; some of it acts already
while a file is being checked. So a text is read here first, and what is not of this shape is never shown to keepalived.
Messages name a line and what is wrong with it; they never quote the line, which may hold a password.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from kavip.api.address import BITS, read_address
from kavip.names import MAX_ROUTER_ID
from kavip.vrrp.tokens import MAX_LINE
from kavip.vrrp.virtualips import VirtualIP

_DEFAULT_PRIORITY: Final = 100
_ALIEN: Final = re.compile(r"[^\x20-\x7e]")
_SPECIAL: Final = re.compile(r"[\\$~!#]")  # escapes, definitions, repetitions, comments
_WORD: Final = re.compile(r"[a-z][a-z0-9_]*")
_OPEN: Final = re.compile(r"([a-z0-9_]+)(?: ([A-Za-z0-9][A-Za-z0-9_.:/-]*))? \{")
_INLINE: Final = re.compile(r"[a-z0-9_]+ \{( [^{}\"]+)? \}")
_BLOCKS: Final = frozenset({"global_defs", "vrrp_instance", "vrrp_track_file"})
_ADDRESS_BLOCKS: Final = frozenset({"virtual_ipaddress", "virtual_ipaddress_excluded"})
_DENIED: Final = frozenset(
    {
        "config_save_dir",  # runs a shell, and does so while a file is being checked
        "data_use_instance",  # these move the files by which the agent knows the daemon
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


@dataclass(frozen=True, slots=True)
class Instance:
    """One ``vrrp_instance`` as far as the agent compares it with what the daemon says."""

    name: str
    router_id: int
    interface: str
    priority: int = _DEFAULT_PRIORITY
    virtual_ips: tuple[VirtualIP, ...] = ()

    @property
    def family(self) -> int:
        """4 or 6: that of the first address, as keepalived decides it."""
        return self.virtual_ips[0].address.family if self.virtual_ips else 4


@dataclass(frozen=True, slots=True)
class Configuration:
    """What stands in a configuration."""

    instances: tuple[Instance, ...] = ()

    @property
    def virtual_ips(self) -> frozenset[VirtualIP]:
        """Every address that this configuration may put on an interface."""
        return frozenset(each for instance in self.instances for each in instance.virtual_ips)

    @property
    def interfaces(self) -> frozenset[str]:
        """Every interface that it names."""
        own = {instance.interface for instance in self.instances}
        return frozenset(own | {each.interface for each in self.virtual_ips})


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a configuration is not run: one line, without text from any file."""

    reason: str


@dataclass(slots=True)
class _Draft:
    """A ``vrrp_instance`` while it is being read."""

    name: str
    router_id: int = 0
    interface: str = ""
    priority: int = _DEFAULT_PRIORITY
    virtual_ips: list[VirtualIP] = field(default_factory=list)

    def finished(self) -> Instance:
        return Instance(self.name, self.router_id, self.interface, self.priority, tuple(self.virtual_ips))


def read(text: str) -> Configuration | Refused:
    """Read a localised configuration; the first line that is not of kavip's shape refuses all of it."""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if fault := _lexical_fault(line):
            return Refused(f"line {number}: {fault}")
    reader = _Reader()
    for number, line in enumerate(lines, start=1):
        if fault := reader.take(line):
            return Refused(f"line {number}: {fault}")
    if fault := reader.unfinished():
        return Refused(fault)
    return Configuration(tuple(sorted((each.finished() for each in reader.drafts), key=lambda each: each.name)))


def instance_at(text: str, number: int) -> str:
    """The name of the instance that line *number* of *text* stands in, or ""."""
    name = ""
    for line in text.split("\n")[:number]:
        match = _OPEN.fullmatch(line)  # unindented: a block at the top
        name = (match[2] or "") if match and match[1] == "vrrp_instance" else "" if match else name
    return name


def _lexical_fault(line: str) -> str:
    """What no line may hold, wherever it stands."""
    if _ALIEN.search(line):
        return "a byte that is not printable ASCII"
    if len(line) > MAX_LINE:
        return f"longer than {MAX_LINE} bytes"
    stripped = line.strip()
    if stripped.startswith("#"):  # the whole line is a comment; a marker inside one means nothing to keepalived
        return "" if "\\" not in stripped else "a backslash"
    if _SPECIAL.search(stripped):
        return "a character that keepalived gives a meaning of its own"
    if stripped.startswith("@"):
        return "a condition that does not name a node"
    if stripped.count('"') % 2:
        return "an unbalanced quote"
    return ""


class _Reader:
    """Walks the lines; :meth:`take` returns what is wrong with one, or an empty text."""

    def __init__(self) -> None:
        self.drafts: list[_Draft] = []
        self._open: list[str] = []
        self._seen: set[str] = set()

    def take(self, line: str) -> str:
        """Read one line that is lexically sound."""
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            return ""
        if stripped == "}":
            return "" if self._open and self._open.pop() else "closes a block that is not open"
        keyword = stripped.split(maxsplit=1)[0]
        if keyword.startswith("include") or keyword in _DENIED:
            return "a keyword that kavip never writes"
        if match := _OPEN.fullmatch(stripped):
            return self._enter(match[1], match[2] or "")
        if "{" in stripped or "}" in stripped:
            inner = stripped.partition("{")[2].split()
            sound = _INLINE.fullmatch(stripped) and self._open and not inner[0].startswith("include")
            return "" if sound else "a brace that is not at the end of the line"
        if not self._open:
            return "a keyword outside a block"
        if len(self._open) == 1 and not _WORD.fullmatch(keyword):
            return "not a keyword"
        return self._keyword(stripped.split())

    def unfinished(self) -> str:
        """What is wrong with the whole, once every line was read."""
        if self._open:
            return f"a block {self._open[-1]} is never closed"
        if "global_defs" not in self._seen:
            return "there is no global_defs block: this is not a configuration that kavip wrote"
        doubled = _first_doubled([each.name for each in self.drafts])
        if doubled:
            return f"instance {doubled} stands twice"
        for draft in self.drafts:
            if not draft.router_id:
                return f"instance {draft.name}: virtual_router_id is missing"
            if not draft.interface:
                return f"instance {draft.name}: interface is missing"
        twice = _first_doubled([str(each.address) for draft in self.drafts for each in draft.virtual_ips])
        return f"virtual IP {twice} stands twice" if twice else ""

    def _enter(self, keyword: str, name: str) -> str:
        if not self._open and keyword not in _BLOCKS:
            return "a block that kavip never writes"
        if not self._open and keyword == "vrrp_instance":
            if not name:
                return "vrrp_instance without a name"
            self.drafts.append(_Draft(name))
        self._open.append(keyword)
        self._seen.add(keyword)
        return ""

    def _keyword(self, given: list[str]) -> str:
        if self._open[0] != "vrrp_instance":
            return ""
        draft = self.drafts[-1]
        if len(self._open) == 1:
            return _set(draft, given)
        if self._open[1] in _ADDRESS_BLOCKS:
            return _add(draft, given)
        return ""


def _set(draft: _Draft, given: list[str]) -> str:
    keyword, *values = given
    match keyword:
        case "interface":
            if len(values) != 1:
                return "interface wants one name"
            draft.interface = values[0]
        case "virtual_router_id":
            draft.router_id = _number(values, 1, MAX_ROUTER_ID)
            return "" if draft.router_id else f"virtual_router_id wants a number from 1 to {MAX_ROUTER_ID}"
        case "priority":
            draft.priority = _number(values, 1, 254)
            return "" if draft.priority else "priority wants a number from 1 to 254"
    return ""


def _add(draft: _Draft, given: list[str]) -> str:
    text, *options = given
    bare, slash, length = text.partition("/")
    address = read_address(bare)
    if address is None:
        return "not an IP address"
    prefix = _number([length], 1, BITS[address.family]) if slash else BITS[address.family]
    if not prefix:
        return f"prefix length wants a number from 1 to {BITS[address.family]}"
    named = options[options.index("dev") + 1 :] if "dev" in options else []
    interface = named[0] if named else draft.interface
    if not interface:
        return "an address without an interface"
    draft.virtual_ips.append(VirtualIP(address, prefix, interface))
    return ""


def _number(values: list[str], lowest: int, highest: int) -> int:
    """The number that *values* consist of, or 0, which is nowhere allowed."""
    if len(values) != 1 or not re.fullmatch(r"[1-9][0-9]{0,3}", values[0]):
        return 0
    number = int(values[0])
    return number if lowest <= number <= highest else 0


def _first_doubled(values: list[str]) -> str:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return ""
