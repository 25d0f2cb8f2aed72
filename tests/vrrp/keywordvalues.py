"""Strategies for keyword values of users: mostly almost valid, because all others are refused at once."""

import json
from collections.abc import Mapping
from random import Random
from typing import Any

from hypothesis import strategies as st

from kavip.api.group import PasswordAuth, SecretRef
from kavip.vrrp import keywords, verbatim
from kavip.vrrp.grammar import Value
from kavip.vrrp.tokens import Tokens, tokens
from tests.vrrp.samples import NEW

EVERY = [*keywords.ALLOWABLE, "track_interface"]
"""The keywords that a group can allow its Services."""

SPECS: dict[str, dict[str, Any]] = {
    "new": NEW,
    "old": {},
    "unicast": {"unicast_enabled": True},
    "multicast": {"vrrp_version": 3},
    "password": {"vrrp_version": 2, "password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"))},
    "apart": {**NEW, "vrrp_interface": "eth1", "preempt_delay_seconds": 5},
    "steady": {**NEW, "no_preempt": True},
}
"""One group for each kind of instance that kavip writes."""

EDGES = (
    *("", "0", "1", "2", "3", "4", "5", "10", "20", "50", "99", "100", "253", "254", "255", "300", "600", "1000"),
    *("10000", "86400", "1000000", "10000000", "16777216", "4294967295", "4294967296", "-1", "-20", "-253", "-0"),
    *("0.001", "0.000001", "1.0", "2.5", "300.000", "0.1", "40.95", "00", "051", "+5", "5s", "1e3", "0x5", "1_0"),
    *("MTU", "ADVERT", "allow_if_changes", "on", "off", "all", "all 100", "never", "5 6", '"5"', "'5'", "5 # x"),
    *("224.0.0.18", "224.0.0.0", "224.0.0.255", "ff02::12", "FF02::12", "ff02::1%eth0", "ff02::", "224.0.1.1"),
    *("/bin/echo", "/bin/echo up a=b,c", '"/bin/echo a b"', "include", "{ include x }", "{ }", "{}"),
    *("{ eth0 }", "{ eth1 }", "{ eth9 }", "{ weight }", "{ eth1 weight 0 }", "{ eth9 weight -253 }"),
    *("{ 10.0.0.0/8 dev eth1 }", "{ 2001:db8::/32 via fe80::1 dev eth9 }", "{ 0.0.0.0/8 via 0.0.0.0 dev eth0 }"),
    *("{ from 10.0.0.0/8 table 252 preference 1 }", "{ to ff00::/16 table 1 preference 32765 }"),
)
NAMES = ("eth0", "eth1", "eth9", "lo", "all", "default", "weight", "reverse", "dev", "no_track", "table", "0", "a.5")

names = st.sampled_from(NAMES) | st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,15}", fullmatch=True)
numbers = st.integers(-300, 2000).map(str) | st.integers(0, 20_000_000).map(str)
decimals = st.decimals(0, 1100, places=3).map(str) | st.decimals(0, 1, places=6).map(lambda each: f"{each:f}")
addresses = st.ip_addresses().map(str)
networks = st.builds(
    lambda address, prefix: f"{address}/{min(prefix, address.max_prefixlen)}", st.ip_addresses(), st.integers(0, 128)
) | st.builds(
    lambda number, prefix: f"{number >> 24}.{number >> 16 & 255 if prefix > 8 else 0}.0.0/{prefix}",
    st.integers(0, 2**32 - 1),
    st.integers(7, 16),
)
blocks = st.one_of(
    names.map(lambda name: f"{{ {name} }}"),
    st.builds("{{ {} weight {} }}".format, names, numbers),
    st.builds("{{ {} dev {} }}".format, networks, names),
    st.builds("{{ {} via {} dev {} }}".format, networks, addresses, names),
    st.builds(
        "{{ {} {} table {} preference {} }}".format, st.sampled_from(("from", "to", "iif")), networks, numbers, numbers
    ),
)
sound = st.one_of(st.sampled_from(EDGES), numbers, decimals, addresses, blocks)
values = sound | st.builds("".join, st.lists(sound | st.text(max_size=4), max_size=3))

KNOWN = {**keywords.SERVICE, **keywords.ALLOWABLE, **keywords.NOT_RENDERED}
KNOWN_GLOBALLY = {**keywords.GLOBAL, **keywords.GLOBAL_SCRIPTS}


def takes(value: Value, text: str) -> bool:
    """Whether the grammar *value* accepts *text*."""
    given = tokens(text)
    return isinstance(given, Tokens) and value.read("x", given) is not None


def edges(known: Mapping[str, Value]) -> dict[str, list[str]]:
    """The edge values that each of the *known* keywords accepts."""
    return {keyword: [text for text in EDGES if takes(value, text)] for keyword, value in known.items()}


TAKEN, TAKEN_GLOBALLY = edges(KNOWN), edges(KNOWN_GLOBALLY)


def entries(known: Mapping[str, Value]) -> st.SearchStrategy[tuple[str, str]]:
    """One of the *known* keywords with a value that it accepts."""
    taken = edges(known)

    def settled(keyword: str, text: str, number: int) -> tuple[str, str]:
        return keyword, text if takes(known[keyword], text) else taken[keyword][number % len(taken[keyword])]

    return st.builds(settled, st.sampled_from(sorted(known)), values, st.integers(0, len(EDGES)))


def some_of(taken: Mapping[str, list[str]], random: Random) -> dict[str, str]:
    """About half of the keywords, each with one of its edge values in *taken*."""
    return {keyword: random.choice(texts) for keyword, texts in taken.items() if random.random() < 1 / 2}


def accepted(wanted: dict[str, str]) -> dict[str, str]:
    """The entries of *wanted* that kavip accepts on a Service, alone and together."""
    fine: dict[str, str] = {}
    for keyword, value in wanted.items():
        more = {**fine, keyword: value}
        if not verbatim.read_service(json.dumps(more), allowed=EVERY).refusals:
            fine = more
    return fine


def accepted_globally(wanted: dict[str, str]) -> dict[str, str]:
    """The entries of *wanted* that kavip accepts in a group."""
    return {
        keyword: value
        for keyword, value in wanted.items()
        if not verbatim.read_global({keyword: value}, allow_scripts=True).refusals
    }
