"""
``global_defs`` of a group: what kavip needs of the daemon as a whole.
"""

from typing import Final

from kavip.api.group import KeepalivedGroup
from kavip.vrrp import keywords, verbatim
from kavip.vrrp.grammar import Line

_OWN: Final = (
    Line("enable_script_security"),
    Line("max_auto_priority", ("-1",)),
    Line("process_name", ("kavip_main",)),
    Line("vrrp_higher_prio_send_advert"),
    Line("vrrp_process_name", ("kavip_vrrp",)),
)
"""
Processes have names of their own, because OpenShift's resign script kills the oldest process called "keepalived".

A master that hears a better one says so before it leaves, and the better one announces its addresses once more. Where
both rose at once, or one was not heard for a while, the last announcement was the wrong one's: clients would go on to
ask a node that has the address no longer, for seconds.
"""

_FIRST: Final = ("router_id", "script_user")
"""keepalived judges a program or a FIFO at its line, by the user that it knows by then."""

_NAMES_INTERFACES: Final = frozenset({"track_interface", "virtual_routes"})
"""
Where a group allows these its Services may name any interface. With ``dynamic_interfaces`` one that a node lacks is
that Service's loss; without, the node would refuse the configuration of all.
"""

_SHARED_GLOBALS: Final = (
    Line("vrrp_garp_interval", ("0.0002",)),
    Line("vrrp_garp_master_refresh", ("60",)),
    Line("vrrp_garp_master_repeat", ("1",)),
    Line("vrrp_gna_interval", ("0.0002",)),
)
"""
A Shared group announces hundreds of addresses at a take-over. By default each is sent ten times, five of them in one
burst; so each is sent twice, at once and after 5 s (twice as often where another master gives way), and again every
minute for those who missed all. Measured for 541 addresses: 1,082 frames instead of 5,410, the first 541 within 150 ms
of the take-over (115 ms by default).
"""


def globals_of(group: KeepalivedGroup) -> tuple[Line, ...]:
    """``global_defs``: ours, and over them what the group's owner wrote; entries that are not allowed are left out."""
    own = {line.keyword: line for line in (*_OWN, Line("router_id", (group.metadata.name,)))}
    if _NAMES_INTERFACES & set(group.spec.allow_verbatim or ()):
        own["dynamic_interfaces"] = Line("dynamic_interfaces")
    if group.is_shared:
        own |= {line.keyword: line for line in _SHARED_GLOBALS}
    found = verbatim.read_global(group.spec.verbatim_config, allow_scripts=group.spec.allow_scripts)
    theirs = {line.keyword: line for line in found.lines if line.keyword != "vrrp_version"}
    if theirs.keys() & keywords.GLOBAL_SCRIPTS.keys():
        own["script_user"] = Line("script_user", ("root",))
    merged = {**own, **theirs}
    return tuple(sorted(merged.values(), key=lambda line: (line.keyword not in _FIRST, line.keyword)))
