"""
The keywords that users may write, each with the grammar of its value.

keepalived takes far more than is good: extra words pass in silence, ``5x`` is 5, and a missing value ends the process.
So a value is accepted only if it is exactly one of the forms below; numbers are canonical decimals.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import ip_address, ip_network
from typing import Final

NUMBER: Final = re.compile(r"(?!-0\b)-?(0|[1-9][0-9]{0,9})(\.[0-9]{1,6})?")
INTERFACE: Final = re.compile(r"(?!lo$)[A-Za-z0-9][A-Za-z0-9._-]{0,14}")
KEYWORD: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")
WORD: Final = re.compile(r"[A-Za-z0-9_.:/+-]{1,64}")
BLOCK: Final = re.compile(r"\{ *([^{}]*?) *\}")
TRACKED: Final = re.compile(r"(?P<name>\S+)(?: +weight +(?P<weight>\S+))?")
COMMAND_WORD: Final = re.compile(r"[A-Za-z0-9_.:/+=,-]{1,128}")

INTERFACE_REMEDY: Final = "want 1 to 15 letters, digits, '.', '_' or '-', beginning with a letter or digit, not lo"
MOST_COMMAND_WORDS: Final = 16


@dataclass(frozen=True, slots=True)
class Line:
    """
    One line of a block: a keyword and its words.

    With *block*, those words follow in braces, as one line of their own. With *quoted*, the words are one command.
    """

    keyword: str
    words: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """The grammar of a keyword's value: *read* gives the line, or None; *want* says what would be right."""

    want: str
    read: Callable[[str, str], Line | None]


def is_interface(text: str) -> bool:
    """Whether *text* can be the name of an interface that holds VIPs or VRRP (contract 8)."""
    return INTERFACE.fullmatch(text) is not None


def flag() -> Value:
    """A keyword without a value."""
    return Value('want an empty value ("")', lambda keyword, text: None if text else Line(keyword))


def number(low: str, high: str, *, decimals: int = 0) -> Value:
    """A decimal from *low* to *high*."""
    lowest, highest = Decimal(low), Decimal(high)
    fraction = f" with at most {decimals} decimals" if decimals else ", a whole number"

    def read(keyword: str, text: str) -> Line | None:
        if not NUMBER.fullmatch(text) or len(text.partition(".")[2]) > decimals or ("." in text and not decimals):
            return None
        return Line(keyword, (text,)) if lowest <= Decimal(text) <= highest else None

    return Value(f"want {low} to {high}{fraction}", read)


def one_of(*values: str) -> Value:
    """One of *values*; "" among them stands for the keyword alone."""
    shown = " or ".join(value or "nothing" for value in values)
    return Value(f"want {shown}", lambda keyword, text: Line(keyword, tuple(text.split())) if text in values else None)


def pattern(expression: str, want: str) -> Value:
    """One word that matches *expression*."""
    wanted = re.compile(expression)
    return Value(want, lambda keyword, text: Line(keyword, (text,)) if wanted.fullmatch(text) else None)


def either(first: Value, second: Value) -> Value:
    """What one of two grammars takes."""

    def read(keyword: str, text: str) -> Line | None:
        return first.read(keyword, text) or second.read(keyword, text)

    return Value(f"{first.want}, or {second.want.removeprefix('want ')}", read)


def address_in(network: str) -> Value:
    """An address of *network*."""
    block = ip_network(network)

    def read(keyword: str, text: str) -> Line | None:
        try:
            address = ip_address(text)
        except ValueError:
            return None
        return Line(keyword, (str(address),)) if str(address) == text.lower() and address in block else None

    return Value(f"want an address in {network}", read)


def path() -> Value:
    """An absolute path."""
    return pattern(r"/[A-Za-z0-9_.+/-]{1,200}", "want an absolute path of letters, digits, '.', '_', '+', '-' and '/'")


def command() -> Value:
    """An absolute path and its arguments; written in quotes, so that keepalived sees one word."""

    def read(keyword: str, text: str) -> Line | None:
        bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
        words = tuple(bare.split(" "))
        fits = len(words) <= MOST_COMMAND_WORDS and all(COMMAND_WORD.fullmatch(word) for word in words)
        return Line(keyword, words, quoted=True) if fits and bare.startswith("/") else None

    return Value("want an absolute path and plain arguments, separated by single blanks", read)


def tracked_interface() -> Value:
    """``{ NAME }`` or ``{ NAME weight N }``: the form that a JSON string can carry."""

    def read(keyword: str, text: str) -> Line | None:
        inner = BLOCK.fullmatch(text)
        entry = TRACKED.fullmatch(inner[1]) if inner else None
        if entry is None or not is_interface(entry["name"]) or entry["name"].startswith("include"):
            return None
        if entry["weight"] is None:
            return Line(keyword, block=(entry["name"],))
        weight = number("-253", "253").read(keyword, entry["weight"])
        return Line(keyword, block=(entry["name"], "weight", *weight.words)) if weight else None

    return Value("want { INTERFACE } or { INTERFACE weight -253..253 }", read)


def plain_words() -> Value:
    """Words, or words in one pair of braces: for keywords whose grammar only the group's owner knows."""

    def read(keyword: str, text: str) -> Line | None:
        inner = BLOCK.fullmatch(text)
        words = tuple((inner[1] if inner else text).split(" ")) if text else ()
        if not all(WORD.fullmatch(word) for word in words) or (inner and words[0].startswith("include")):
            return None
        return Line(keyword, block=words) if inner else Line(keyword, words)

    return Value("want plain words of letters, digits and _.:/+-, or one line of them in braces", read)


SERVICE: Final[Mapping[str, Value]] = {
    "accept": flag(),
    "down_timer_adverts": number("3", "20"),
    "garp_lower_prio_delay": number("0", "600"),
    "garp_lower_prio_repeat": number("0", "20"),
    "garp_master_delay": number("0", "600"),
    "garp_master_refresh": number("0", "86400"),
    "garp_master_refresh_repeat": number("1", "10"),
    "garp_master_repeat": number("1", "20"),
    "higher_prio_send_advert": flag(),
    "lower_prio_no_advert": flag(),
    "nopreempt": flag(),
    "preempt_delay": number("0", "1000", decimals=3),
    "track_interface": tracked_interface(),
    "track_src_ip": flag(),
}
"""What a Service may put into its ``vrrp_instance``."""

NOT_RENDERED: Final[Mapping[str, Value]] = {
    "advert_int": either(number("1", "255"), number("0.1", "40.95", decimals=2)),  # version 2, version 3
    "priority": number("1", "254"),
}
"""What old installations carry: accepted with a warning, and without effect, for kavip orders the nodes."""

GLOBAL: Final[Mapping[str, Value]] = {
    "dynamic_interfaces": one_of("", "allow_if_changes"),
    "log_unknown_vrids": flag(),
    "max_auto_priority": number("-1", "99"),
    "min_auto_priority_delay": number("1", "10000000"),
    "process_names": flag(),
    "router_id": pattern(r"[A-Za-z0-9._-]{1,64}", "want 1 to 64 letters, digits, '.', '_' or '-'"),
    "vrrp_check_unicast_src": flag(),
    "vrrp_down_timer_adverts": number("3", "20"),
    "vrrp_garp_interval": number("0.000001", "1", decimals=6),
    "vrrp_garp_lower_prio_delay": number("0", "600"),
    "vrrp_garp_lower_prio_repeat": number("0", "20"),
    "vrrp_garp_master_delay": number("0", "600"),
    "vrrp_garp_master_refresh": number("0", "86400"),
    "vrrp_garp_master_refresh_repeat": number("1", "10"),
    "vrrp_garp_master_repeat": number("1", "20"),
    "vrrp_gna_interval": number("0.000001", "1", decimals=6),
    "vrrp_higher_prio_send_advert": flag(),
    "vrrp_lower_prio_no_advert": flag(),
    "vrrp_mcast_group4": address_in("224.0.0.0/24"),
    "vrrp_mcast_group6": address_in("ff02::/16"),
    "vrrp_min_garp": flag(),
    "vrrp_netlink_cmd_rcv_bufs": number("1", "16777216"),
    "vrrp_netlink_monitor_rcv_bufs": number("1", "16777216"),
    "vrrp_no_swap": flag(),
    "vrrp_priority": number("-20", "0"),
    "vrrp_rlimit_rttime": number("10000", "1000000"),
    "vrrp_rt_priority": number("1", "50"),
    "vrrp_rx_bufs_multiplier": number("1", "100"),
    "vrrp_rx_bufs_policy": one_of("MTU", "ADVERT"),
    "vrrp_skip_check_adv_addr": flag(),
    "vrrp_startup_delay": number("0.001", "300", decimals=3),
    "vrrp_version": one_of("2", "3"),
}
"""What a group may put into ``global_defs``."""

GLOBAL_SCRIPTS: Final[Mapping[str, Value]] = {
    "notify_fifo": path(),
    "notify_fifo_script": command(),
    "shutdown_script": command(),
    "shutdown_script_timeout": number("1", "3600"),
    "startup_script": command(),
    "startup_script_timeout": number("1", "3600"),
    "vrrp_notify_fifo": path(),
    "vrrp_notify_fifo_script": command(),
}
"""What runs programs or writes files: only with ``spec.allowScripts``."""

_KAVIP_WRITES: Final = frozenset(
    {
        "advert_int",
        "authentication",
        "check_unicast_src",
        "enable_script_security",
        "interface",
        "native_ipv6",
        "priority",
        "script_user",
        "skip_check_adv_addr",
        "state",
        "track_file",
        "version",
        "virtual_router_id",
    }
)
_KAVIP_WRITES_PREFIXES: Final = ("auth_", "mcast_", "process_name", "reload_", "unicast_", "virtual_ipaddress")
_RUNS_PROGRAMS: Final = ("notify", "script", "track_script", "startup_script", "shutdown_script", "include")


def is_kavips(keyword: str) -> bool:
    """Whether kavip itself writes *keyword*, always."""
    return keyword in _KAVIP_WRITES or keyword.startswith(_KAVIP_WRITES_PREFIXES)


def runs_programs(keyword: str) -> bool:
    """Whether *keyword* makes keepalived run a program or read another file."""
    return keyword.startswith(_RUNS_PROGRAMS) or keyword.endswith(("_script", "_fifo"))
