"""
The ``global_defs`` of a group: the settings of the daemon as a whole.
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
Processes have their own names because OpenShift's resign script kills the oldest process called "keepalived".

``vrrp_higher_prio_send_advert``: a master that receives a higher priority sends another advertisement before it becomes
backup, and the new master then announces its addresses once more. Without that, where both nodes became master at once
or adverts of one were lost for a while, the last announcement came from the wrong node, and clients sent to a node
that no longer has the address, for seconds.
"""

_FIRST: Final = ("router_id", "script_user")
"""These come first: keepalived checks a program or a FIFO at its line, with the user that it has read by then."""

NAMES_INTERFACES: Final = frozenset({"track_interface", "virtual_routes"})
"""
Where a group allows these, its Services may name any interface. With ``dynamic_interfaces`` an interface that a node
does not have affects that Service only; without it the node would reject the whole configuration.
"""

_SHARED_GLOBALS: Final = (
    Line("vrrp_garp_interval", ("0.0002",)),
    Line("vrrp_garp_master_refresh", ("60",)),
    Line("vrrp_garp_master_repeat", ("1",)),
    Line("vrrp_gna_interval", ("0.0002",)),
)
"""
A Shared group announces hundreds of addresses when a node becomes master. By default each is sent ten times, five of
them in one burst. So each is sent twice, at once and after 5 s (twice as often where another master becomes backup),
and again every minute for clients that missed all of them. Measured for 541 addresses: 1,082 frames instead of 5,410,
the first 541 within 150 ms (115 ms by default).
"""


def globals_of(group: KeepalivedGroup) -> tuple[Line, ...]:
    """``global_defs``: kavip's lines, overridden by those of the group; entries that are not allowed are left out."""
    own = {line.keyword: line for line in (*_OWN, Line("router_id", (group.metadata.name,)))}
    if NAMES_INTERFACES & set(group.spec.allow_verbatim or ()):
        own["dynamic_interfaces"] = Line("dynamic_interfaces")
    if group.is_shared:
        own |= {line.keyword: line for line in _SHARED_GLOBALS}
    found = verbatim.read_global(group.spec.verbatim_config, allow_scripts=group.spec.allow_scripts)
    written = {line.keyword: line for line in found.lines if line.keyword != "vrrp_version"}
    if written.keys() & keywords.GLOBAL_SCRIPTS.keys():
        own["script_user"] = Line("script_user", ("root",))
    return tuple(sorted({**own, **written}.values(), key=lambda line: (line.keyword not in _FIRST, line.keyword)))
