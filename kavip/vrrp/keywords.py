"""
The keywords that users may write, each with the grammar of its value, and the reasons against all others.

Every keyword listed here was tried on keepalived: with any value of its grammar, in any instance that kavip writes,
keepalived accepts the whole file without output (``tests/vrrp/test_accepted.py``).
"""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

from kavip.vrrp.grammar import (
    Value,
    address_in,
    command,
    either,
    flag,
    number,
    one_of,
    path,
    pattern,
    route,
    rule,
    tracked_interface,
)

KEYWORD: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")

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
"""Keywords that a Service may set in its ``vrrp_instance``."""

FLOORS: Final[Mapping[str, int]] = {"garp_master_refresh": 10}
"""
The least value of a Service, 0 (off) excepted; a smaller one is raised, unless the group allows the keyword.

With ``garp_master_refresh_repeat``, at most 10, each VIP then costs the LAN one broadcast a second.
"""

ALLOWABLE: Final[Mapping[str, Value]] = {
    "debug": number("0", "4"),
    "dont_track_primary": flag(),
    "garp_extra_if": number("0", "86400"),
    "kernel_rx_buf_size": number("1", "16777216"),
    "no_accept": flag(),
    "preempt": flag(),
    "promote_secondaries": flag(),
    "virtual_routes": route(),
    "virtual_rules": rule(),
}
"""Keywords that a group may also allow its Services (``spec.allowVerbatim``)."""

NOT_RENDERED: Final[Mapping[str, Value]] = {
    "advert_int": either(number("1", "255"), number("0.1", "40.95", decimals=2)),  # version 2, version 3
    "priority": number("1", "254"),
}
"""Keywords of old installations: accepted with a warning and without effect, because kavip sets both."""

EXCLUSIVE: Final = (("accept", "no_accept"), ("nopreempt", "preempt"), ("nopreempt", "preempt_delay"))
"""Pairs of which keepalived drops one, in most cases with a message, which the agent treats as an error."""

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
"""Keywords that a group may set in ``global_defs``."""

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
"""Keywords that run programs or write files: only with ``spec.allowScripts``."""

_KAVIP_WRITES: Final = frozenset(
    {
        "advert_int",
        "authentication",
        "check_unicast_src",
        "data_use_instance",
        "enable_script_security",
        "fifo_write_vrrp_states_on_reload",
        "interface",
        "native_ipv6",
        "priority",
        "process_name",
        "script_user",
        "skip_check_adv_addr",
        "state",
        "track_file",
        "version",
        "virtual_router_id",
        "vrrp_notify_priority_changes",
        "vrrp_process_name",
    }
)
_KAVIP_WRITES_PREFIXES: Final = ("auth_", "mcast_", "reload_", "unicast_", "virtual_ipaddress")
_RUNS_PROGRAMS: Final = ("notify", "script", "track_script", "startup_script", "shutdown_script", "include")

_NEVER: Final[Mapping[str, str]] = {
    "linkbeat_use_polling": "keepalived warns of it, and the agents treat a warning as an error",
    "lvs_sync_daemon_interface": "it starts a daemon of the node's kernel",
    "old_unicast_checksum": "keepalived refuses it where the group is multicast",
    "smtp_alert": "it sends mail",
    "strict_mode": "keepalived then refuses what kavip writes",
    "track_bfd": "it needs a block outside the instance",
    "track_process": "it needs a block outside the instance",
    "use_ipvlan": "it makes interfaces that kavip does not watch",
    "use_vmac": "it makes interfaces that kavip does not watch",
    "use_vmac_addr": "it makes interfaces that kavip does not watch",
    "vmac_garp_intvl": "keepalived wants garp_extra_if instead",
    "vmac_xmit_base": "it makes interfaces that kavip does not watch",
    "vrf": "keepalived refuses it beside an interface",
}
"""Keywords of a ``vrrp_instance`` that no group may allow."""

_NEVER_GLOBAL: Final[Mapping[str, str]] = {
    "enable_snmp_vrrp": "it needs a daemon that is not in the pod; /metrics shows the same",
    "notification_email": "it sends mail",
    "notification_email_from": "it sends mail",
    "nftables": "it is for VIPs that accept no packets, but kavip's accept them",
    "smtp_alert": "it sends mail",
    "smtp_server": "it sends mail",
    "vrrp_ipsets": "it is for VIPs that accept no packets, but kavip's accept them",
    "vrrp_iptables": "it is for VIPs that accept no packets, but kavip's accept them",
    "vrrp_strict": "keepalived then refuses what kavip writes",
}
"""Keywords of ``global_defs`` that no group may use; one is in the first example of keepalived-operator."""


def is_kavips(keyword: str) -> bool:
    """Whether kavip itself always writes *keyword*."""
    return keyword in _KAVIP_WRITES or keyword.startswith(_KAVIP_WRITES_PREFIXES)


def runs_programs(keyword: str) -> bool:
    """Whether *keyword* makes keepalived run a program or read another file."""
    return keyword.startswith(_RUNS_PROGRAMS) or keyword.endswith(("_script", "_fifo"))


def instance_problem(keyword: str, similar: Collection[str] = (*SERVICE, *ALLOWABLE)) -> str:
    """
    Why no group may allow its Services *keyword* in an instance; "" if a group may.

    The nearest of the *similar* keywords is named; comparing with all of them takes 0.1 ms.
    """
    if keyword in SERVICE or keyword in ALLOWABLE:
        return ""
    if is_kavips(keyword):
        return "kavip writes this keyword itself; remove it"
    if runs_programs(keyword):
        return "it runs programs or reads files, which no Service may; remove it"
    if keyword in _NEVER:
        return f"{_NEVER[keyword]}; remove it"
    if keyword in GLOBAL:
        return "a keyword of global_defs; set it in spec.verbatimConfig of the group"
    return f"not a keyword of keepalived's vrrp_instance; {_remedy(keyword, similar)}"


def global_problem(keyword: str, *, allow_scripts: bool) -> str:
    """Why a group may not use *keyword* in ``global_defs``; "" if it may."""
    if keyword in GLOBAL or (allow_scripts and keyword in GLOBAL_SCRIPTS):
        return ""
    if keyword in GLOBAL_SCRIPTS:
        return "runs programs or writes files: set spec.allowScripts, or remove it"
    if is_kavips(keyword):
        return "kavip writes this keyword itself; remove it"
    if keyword in _NEVER_GLOBAL:
        return f"{_NEVER_GLOBAL[keyword]}; remove it"
    if keyword in SERVICE:
        return "a keyword of vrrp_instance; set it in the verbatimconfig annotation of a Service"
    return f"not a keyword of global_defs that groups may use; {_remedy(keyword, (*GLOBAL, *GLOBAL_SCRIPTS))}"


def _remedy(keyword: str, similar: Collection[str]) -> str:
    """The remedy: the nearest of the *similar* keywords, if one is near."""
    found = get_close_matches(keyword, similar, n=1, cutoff=0.75) if similar and KEYWORD.fullmatch(keyword) else []
    return f"did you mean {found[0]}?" if found else "remove it"
