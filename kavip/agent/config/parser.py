"""
Reads the lines of blocks as kavip writes them: one keyword per line, braces at the end of a line or alone on one.

What comes out is a draft, also of a block in which something is wrong, and the first thing that is wrong.
"""

import re
from dataclasses import dataclass
from typing import Final

from kavip.agent.config.blocks import INSTANCE, OPEN, Block
from kavip.agent.config.draft import Draft
from kavip.vrrp.tokens import MAX_LINE
from kavip.vrrp.tracking import TRACK_NAME

_ALIEN: Final = re.compile(r"[^\x20-\x7e]")
_SPECIAL: Final = re.compile(r"[\\$~!#]")  # escapes, definitions, repetitions, comments
_WORD: Final = re.compile(r"[a-z][a-z0-9_]*")
_INLINE: Final = re.compile(r"[a-z0-9_]+ \{( [^{}\"]+)? \}")
_TRACK_FILES: Final = frozenset({"track_file", "vrrp_track_file"})
_BLOCKS: Final = frozenset({"global_defs", INSTANCE}) | _TRACK_FILES
_ADDRESS_BLOCKS: Final = frozenset({"virtual_ipaddress", "virtual_ipaddress_excluded"})
_PATH: Final = re.compile(r'"(/[A-Za-z0-9_.-]+)+"')
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
class Spot:
    """What is wrong, and in which line of a block."""

    line: int
    text: str


class Reader:
    """
    Walks the lines of blocks; *drafts* are what came out, also of blocks in which something is wrong.

    *tracks* are the track files that were defined.
    """

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.seen: set[str] = set()
        self.tracks: set[str] = set()
        self._open: list[str] = []
        self._inside = ""  # the instance whose block is being read
        self._track = ""

    def fault(self, block: Block) -> Spot | None:
        """Read *block* to its end; the first thing that is wrong with it."""
        first: Spot | None = None
        self._inside = block.name
        for number, line in enumerate(block.lines, start=1):
            ended = block.name and number > 1 and not self._open
            text = "a line behind the end of the block" if ended else _lexical_fault(line) or self._take(line)
            if text and first is None:
                first = Spot(number, text)
        if self._open and first is None:
            first = Spot(len(block.lines), f"a block {self._open[-1]} is never closed")
        return first

    def _take(self, line: str) -> str:
        """Read one line that is lexically sound; what is wrong with it, or an empty text."""
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
            self.drafts.append(Draft(name))
        if not self._open and keyword in _TRACK_FILES:
            if not TRACK_NAME.fullmatch(name):
                return "a track file without a name of kavip's"
            self.tracks.add(name)
            self._track = name
        self._open.append(keyword)
        self.seen.add(keyword)
        return ""

    def _keyword(self, given: list[str]) -> str:
        if self._open[0] in _TRACK_FILES:  # keepalived also knows keywords here that overwrite files
            path = given[1] if len(given) == 2 and given[0] == "file" else ""
            return "" if _PATH.fullmatch(path) and path.endswith(f'/{self._track}"') else "not a track file of kavip's"
        if self._open[0] != INSTANCE:
            return ""
        draft = self.drafts[-1]
        if len(self._open) == 1:
            return draft.set(given)
        if self._open[1] in _ADDRESS_BLOCKS:
            return draft.add(given)
        return draft.follow(given) if self._open[1] in _TRACK_FILES else ""


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
