"""Templates of keepalived.conf with kavip and a real API server: what comes out, and what a fault stops."""

from functools import partial
from typing import Any

import pytest

from kavip import names
from tests.app.conftest import Installation, a_group, object_of, wait_for
from tests.app.test_templates import pod_of, wait_accepted

pytestmark = pytest.mark.apiserver

PERMITTED = "--template-namespaces=lb"
TEMPLATE = """global_defs {
{{ global_defs }}
}
{{ track_files }}
{% for instance in instances %}
vrrp_instance {{ instance.name }} {
{{ instance.lines }}
    garp_master_delay 2
}
{% endfor %}
"""
BAD = TEMPLATE.replace("garp_master_delay 2", "virtual_router_id 9")
SLOW = "{% for a in range(9999) %}{% for b in range(9999) %}{% set c = a * b %}{% endfor %}{% endfor %}"
MARK = "    # kavip: template\n    garp_master_delay 2\n}\n"
VIP, OTHER, THIRD = "192.0.2.200", "192.0.2.201", "192.0.2.202"


def lines(text: str = TEMPLATE, *, label: bool = True) -> dict[str, Any]:
    """The ConfigMap with a template."""
    labels = {names.CONFIG_TEMPLATE_LABEL: "true"} if label else {}
    return object_of("ConfigMap", "lines", namespace="lb", labels=labels, data={"keepalived.conf": text})


def templated(*addresses: str, name: str = "edge", template: str = "lines") -> dict[str, Any]:
    """A group with VIPs of its own, and with a template; "": without one."""
    reference: dict[str, Any] = {"configTemplateRef": {"name": template}} if template else {}
    return a_group(name, virtualIPs=[{"address": each} for each in addresses], **reference)


def text_of(installation: Installation, name: str = "edge") -> str:
    """The published text of a group; "" without one."""
    found = installation.get("configmap", name, "-n", "lb") or {}
    text: str = found.get("data", {}).get(names.CONFIG_KEY, "")
    return text


def wait_text(installation: Installation, *parts: str, lacks: str = "", name: str = "edge") -> str:
    """The published text, once it has all *parts* and not *lacks*."""

    def is_so() -> bool:
        text = text_of(installation, name)
        return all(each in text for each in parts) and not (lacks and lacks in text)

    wait_for(f"{parts} in the text of {name}", is_so, details=partial(text_of, installation, name))
    return text_of(installation, name)


def test_a_template_adds_lines_and_a_fault_stops_nothing(installation: Installation) -> None:
    """Line and column are in the condition; the lines stay, also for the next leader; VIPs and pods go on."""
    replica = installation.start(PERMITTED)
    installation.apply(lines(), templated(VIP))
    wait_text(installation, VIP, MARK)
    wait_accepted(installation, "edge", "True", "the group is served")
    assert wait_for("the DaemonSet", lambda: pod_of(installation, "edge"))

    installation.apply(lines(BAD))
    where = "spec.configTemplateRef: ConfigMap lb/lines, key keepalived.conf: line 8, column 5: virtual_router_id: "
    wait_accepted(installation, "edge", "False", where)
    installation.apply(templated(VIP, OTHER))
    assert wait_text(installation, OTHER).count(MARK) == 1
    replica.kill()
    installation.start(PERMITTED)
    installation.apply(templated(VIP, OTHER, THIRD))
    assert wait_text(installation, THIRD).count(MARK) == 1
    wait_accepted(installation, "edge", "False", "line 8, column 5: virtual_router_id")

    installation.apply(lines(TEMPLATE.replace("delay 2", "delay 3")))
    wait_text(installation, "    garp_master_delay 3\n", lacks="delay 2")
    wait_accepted(installation, "edge", "True", "the group is served")
    installation.apply(templated(VIP, template=""))
    assert "template" not in wait_text(installation, VIP, lacks="garp_master_delay")


def test_a_configmap_needs_its_label(installation: Installation) -> None:
    """Without it the group runs kavip's own text; the label takes effect at once, and so does its removal."""
    installation.start(PERMITTED)
    installation.apply(lines(label=False), templated(VIP))
    wait_accepted(installation, "edge", "False", "no such ConfigMap with the label kavip.io/config-template")
    assert "template" not in wait_text(installation, VIP)
    installation.apply(lines())
    wait_text(installation, MARK)
    wait_accepted(installation, "edge", "True", "the group is served")
    installation.plane.kubectl("label", "configmap", "lines", "-nlb", f"{names.CONFIG_TEMPLATE_LABEL}-")
    wait_accepted(installation, "edge", "False", "no such ConfigMap with the label kavip.io/config-template")
    assert MARK in text_of(installation)


def test_a_slow_template_delays_no_other_group(installation: Installation) -> None:
    """A group without a template, and one with another template, go on; the slow one has a condition."""
    installation.start(PERMITTED)
    slow = object_of(
        "ConfigMap", "slow", namespace="lb", labels={names.CONFIG_TEMPLATE_LABEL: ""}, data={"keepalived.conf": SLOW}
    )
    installation.apply(slow, lines(), templated(VIP, template="slow"))
    wait_accepted(installation, "edge", "False", "takes more than")
    wait_text(installation, VIP)
    installation.apply(templated(OTHER, name="next"), templated(THIRD, name="plain", template=""))
    wait_text(installation, OTHER, MARK, name="next")
    wait_text(installation, THIRD, name="plain")
    installation.apply(templated("192.0.2.210", template="slow"))
    wait_text(installation, "192.0.2.210")


def test_the_namespace_must_be_permitted(installation: Installation) -> None:
    """A template that was permitted once is not used when the setting is gone, and its lines stay."""
    replica = installation.start(PERMITTED)
    installation.apply(lines(), templated(VIP))
    wait_text(installation, MARK)
    replica.kill()
    installation.start()
    wait_accepted(installation, "edge", "False", "the chart value templates.namespaces does not name 'lb'")
    assert MARK in text_of(installation)
    done = installation.try_apply(templated(VIP, name="second"))
    assert "the chart value templates.namespaces does not name 'lb'" in done.stderr
