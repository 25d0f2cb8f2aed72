"""Lines of a template reach keepalived on every node, and a template that cannot be used changes nothing there."""

from functools import partial

import pytest

from kavip import names
from kavip.agent.keepalived.process import JSON_FILE
from kavip.agent.report import dump
from kavip.api.group import ConfigTemplateRef
from kavip.api.workload import ConfigMap
from kavip.podtemplate.permissions import ALL_PERMITTED
from kavip.reconcile.plan import ReconcileOptions
from kavip.vrrp.configtemplate import MARK
from tests.agent.pod import Pod
from tests.reconcile.group.settledgroup import ACCEPTED, condition
from tests.support import build
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.livegroup import LiveGroup, group, service
from tests.transitions.recording import record

pytestmark = pytest.mark.netns

VIPS = ["192.0.2.130", "2001:db8:2::131"]
TEMPLATE = """global_defs {
{{ global_defs }}
    vrrp_min_garp
}
{{ track_files }}
{% for instance in instances %}
vrrp_instance {{ instance.name }} {
{{ instance.lines }}
    garp_master_delay {{ 7 if instance.family == 6 else 6 }}
}
{% endfor %}
"""


def use(live: LiveGroup, text: str) -> None:
    """Let the ConfigMap of the group's template have *text*, and roll out."""
    metadata = build.metadata("lb/lines", labels={names.CONFIG_TEMPLATE_LABEL: "true"})
    live.simulation.templates.store(ConfigMap(metadata=metadata, data={names.CONFIG_KEY: text}))
    live.settle()


def has_delays(pod: Pod, wanted: dict[int, int]) -> bool:
    """Whether keepalived says that ``garp_master_delay`` is as *wanted*, by family."""
    pod.answered(names.STATE_PATH)  # the agent asks keepalived
    found = dump.decode((pod.run_dir / JSON_FILE).read_bytes()) or ()
    return {each.data.family: each.data.garp_delay for each in found} == wanted


def wait_delays(live: LiveGroup, wanted: dict[int, int]) -> None:
    """Wait until keepalived on every node has these delays."""
    for pod in live.pods.values():
        pod.wait_until(f"keepalived has the delays {wanted}", partial(has_delays, pod, wanted))


def test_a_changed_template_reaches_keepalived_and_a_broken_one_does_not(make_live_group: MakeLiveGroup) -> None:
    """No VIP moves and no request is lost; a fault is a condition, no node reloads, and new Services get their VIPs."""
    live = make_live_group(3)
    live.simulation.options = ReconcileOptions(templates=ALL_PERMITTED)
    use_first = group(config_template_ref=ConfigTemplateRef("lines"))
    live.apply(use_first, service("shop/web", VIPS[0]), service("shop/cart", VIPS[1]))
    assert MARK not in live.text  # there is no such ConfigMap yet
    live.wait_for_masters()
    with record(live, VIPS) as recorded:
        use(live, TEMPLATE)
        wait_delays(live, {4: 6, 6: 7})
        use(live, TEMPLATE.replace("6 }}", "9 }}"))
        wait_delays(live, {4: 9, 6: 7})
        reloads, text = {name: each.daemon_reloads() for name, each in live.pods.items()}, live.text
        use(live, TEMPLATE.replace("vrrp_min_garp", "vrrp_min_garp\n    virtual_router_id 9"))
        assert (live.text, {name: each.daemon_reloads() for name, each in live.pods.items()}) == (text, reloads)
    assert (recorded.failures, recorded.double_masters, recorded.transitions) == ({}, (), {}), recorded.timeline()
    message = condition(live.simulation, ACCEPTED)[2]
    assert "line 4, column 5: virtual_router_id: kavip writes this keyword itself" in message
    live.apply(service("shop/new", "192.0.2.140"))
    assert live.master("shop/new")
    assert live.text.count("garp_master_delay 9") == 1
