"""The lines of an instance and of the whole file, and which source of a line takes precedence."""

from typing import Any

from kavip.vrrp.grammar import Line
from tests.support import build
from tests.vrrp.samples import annotated, model, nodes


def line_of(verbatim: str, **spec: Any) -> tuple[Line, ...]:
    """The lines of the only Service of a group."""
    found = model(build.group(**spec), [annotated("a/web", "192.0.2.1", verbatim=verbatim)], nodes(2))
    assert not found.problems
    return found.instances[0].lines


def test_implied_interface_is_not_tracked() -> None:
    """keepalived always tracks an instance's own interface, and reports an error if a line declares it."""
    assert line_of('{"track_interface": "{ eth0 }"}') == ()
    assert line_of('{"track_interface": "{ eth0 }"}', vrrp_interface="eth1") == ()
    assert line_of('{"track_interface": "{ eth0 }"}', interface_from_ip="192.0.2.1") == ()


def test_preemption() -> None:
    """The group's preemption applies where the Service has no line about it."""
    assert line_of("", no_preempt=True) == (Line("nopreempt"),)
    assert line_of("", preempt_delay_seconds=5) == (Line("preempt_delay", ("5",)),)
    assert line_of("", preempt_delay_seconds=0) == ()
    assert line_of('{"preempt_delay": "2"}', no_preempt=True) == (Line("preempt_delay", ("2",)),)
    assert line_of('{"nopreempt": ""}', preempt_delay_seconds=5) == (Line("nopreempt"),)
    allowed = ["preempt"]
    assert line_of('{"preempt": ""}', no_preempt=True, allow_verbatim=allowed) == (Line("preempt"),)
    assert line_of('{"preempt": ""}', preempt_delay_seconds=5, allow_verbatim=allowed) == (
        Line("preempt"),
        Line("preempt_delay", ("5",)),
    )


def test_globals() -> None:
    """The lines of the group replace kavip's; lines that are not allowed are left out."""
    wanted = {"router_id": "x", "max_auto_priority": "5", "vrrp_iptables": "y", "vrrp_version": "3"}
    found = {line.keyword: line.words for line in model(build.group(verbatim_config=wanted), [], []).globals}
    assert found["router_id"] == ("x",)
    assert found["max_auto_priority"] == ("5",)
    assert found["enable_script_security"] == ()
    assert found.keys().isdisjoint({"vrrp_iptables", "vrrp_version", "script_user"})
