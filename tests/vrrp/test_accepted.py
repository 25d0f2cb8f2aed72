"""Real keepalived accepts everything that kavip accepts: in the whole text, localised as on a node, without output."""

import itertools
import json
import re
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hack.testbed.fixtures import MakeSegment
from hack.testbed.segment import Host
from kavip.agent.config.facts import NodeFacts
from kavip.agent.config.localize import localize
from kavip.agent.config.model import LocalizedConfig, MountedConfig
from kavip.api.address import parse_address
from kavip.vrrp import config
from tests.support import build
from tests.vrrp import keywordvalues, livedaemons
from tests.vrrp.samples import annotated, model, nodes

pytestmark = pytest.mark.netns

MEDLEYS = 100
PROGRAM = "/bin/echo"
"""kavip cannot check whether nodes have the programs that a group names; these nodes have this one."""


@pytest.fixture
def host(segment: MakeSegment) -> Host:
    """A node with a second interface without a peer."""
    found = segment(nodes=1).node("n1")
    found.exec("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "eth1-end")
    for name in ("eth1", "eth1-end"):
        found.exec("ip", "link", "set", name, "up")
    return found


def problem(host: Host, spec: str, wanted: list[dict[str, str]], globally: dict[str, str]) -> str:
    """The error of agent or keepalived on *host* for a group whose Services have the annotations *wanted*, or ""."""
    group = build.group(
        **{**keywordvalues.SPECS[spec], "allow_verbatim": keywordvalues.EVERY},
        allow_scripts=True,
        verbatim_config={key: value for key, value in globally.items() if PROGRAM in value or not _is_program(key)},
    )
    services = [
        annotated(f"a/s{n}", f"198.51.100.{n + 1}", f"2001:db8:9::{n + 1}", verbatim=json.dumps(entry))
        for n, entry in enumerate(wanted)
    ]
    found = model(group, services, nodes(2))
    assert not found.problems
    rendered = config.render(found)
    mounted = MountedConfig(rendered.text, rendered.hash, "lb/edge", password="secret12")
    local = localize(mounted, NodeFacts("n1", parse_address(host.ipv4), frozenset({"eth0", "eth1"})))
    if not isinstance(local, LocalizedConfig):
        return local.message
    if local.excluded:
        return f"excluded: {local.excluded}"
    found_fault, lines = livedaemons.check(host, local.text), local.text.split("\n")
    return found_fault and f"{found_fault}\n" + "\n".join(
        lines[int(number) - 1] for number in re.findall(r"Line (\d+)", found_fault)
    )


def _is_program(keyword: str) -> bool:
    return keyword.endswith("_script")


def test_each_keyword_at_its_edges(host: Host) -> None:
    """Each keyword of a Service or a group passes with each edge value of its grammar, and has at least one."""
    taken, taken_globally = keywordvalues.TAKEN, keywordvalues.TAKEN_GLOBALLY
    assert all((*taken.values(), *taken_globally.values()))
    wanted = [{key: text} for key, texts in taken.items() for text in texts]
    assert {spec: problem(host, spec, wanted, {}) for spec in keywordvalues.SPECS} == dict.fromkeys(
        keywordvalues.SPECS, ""
    )
    specs = itertools.cycle(keywordvalues.SPECS)
    for number in range(max(map(len, taken_globally.values()))):
        globally = {key: texts[number % len(texts)] for key, texts in taken_globally.items()}
        assert problem(host, next(specs), [{}], globally) == ""


def test_keywords_together(host: Host) -> None:
    """Any keywords of one Service, and of one group, work together, or kavip refuses them."""
    random = Random(4)
    for spec in (*keywordvalues.SPECS, *keywordvalues.SPECS):
        wanted = [keywordvalues.accepted(keywordvalues.some_of(keywordvalues.TAKEN, random)) for _ in range(MEDLEYS)]
        assert problem(host, spec, wanted, keywordvalues.some_of(keywordvalues.TAKEN_GLOBALLY, random)) == "", spec


def test_any_value(host: Host) -> None:
    """Random values pass in every kind of group."""
    services = st.lists(keywordvalues.entries(keywordvalues.KNOWN), min_size=MEDLEYS // 2, max_size=MEDLEYS)
    groups = st.lists(keywordvalues.entries(keywordvalues.KNOWN_GLOBALLY), max_size=20)

    @settings(max_examples=25, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(sorted(keywordvalues.SPECS)), services, groups)
    def check(spec: str, wanted: list[tuple[str, str]], globally: list[tuple[str, str]]) -> None:
        assert problem(host, spec, [dict([each]) for each in wanted], dict(globally)) == ""

    check()
