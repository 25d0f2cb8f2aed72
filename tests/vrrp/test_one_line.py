"""User text becomes one statement of the user's own instance, or none, and changes nothing else."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kavip.agent.config.facts import InterfaceAddress, NodeFacts
from kavip.agent.config.localize import localize
from kavip.agent.config.model import LocalizedConfig
from kavip.api.address import parse_address
from kavip.vrrp import keywords, verbatim
from kavip.vrrp.virtualips import VirtualIP
from tests.agent.mounts import mounted
from tests.support import build
from tests.support.examples import examples
from tests.vrrp import confparser, keywordvalues
from tests.vrrp.samples import annotated, conf, nodes

ESCAPES = (
    *("5\n}", "5 } vrrp_script e { script x", "{ eth1 } }", "5 # x", "5 ! x", "$_PWD", "@n1 5", "~SEQ(N,1,3) 5"),
    *('5"', "{ include /etc/passwd }", "include /etc/passwd", "5\\", "\\!", "\0", "5\r6", "5\x85", "5" * 2000),
)
NEIGHBOURS = {("global_defs",), ("vrrp_instance", "a/a"), ("vrrp_instance", "a/c"), ("vrrp_instance", "a/b")}
texts = keywordvalues.values | st.text() | st.sampled_from(ESCAPES)


def text(wanted: dict[str, str] | None = None, globally: dict[str, str] | None = None, *, spec: str = "new") -> str:
    """The configuration of a group with three Services; the second one has the annotation *wanted*."""
    services = [annotated(f"a/{name}", f"192.0.2.13{number}") for number, name in enumerate("abc")]
    services[1] = annotated("a/b", "192.0.2.131", verbatim=json.dumps(wanted or {}))
    more: dict[str, Any] = {"allow_verbatim": keywordvalues.EVERY, "allow_scripts": True, "verbatim_config": globally}
    return conf(build.group(**keywordvalues.SPECS[spec], **more), services, nodes(2))


BARE = {spec: confparser.named(confparser.read(text(spec=spec))) for spec in keywordvalues.SPECS}


@pytest.mark.slow
@examples(150)
@given(st.sampled_from(sorted(BARE)), st.sampled_from(sorted(keywordvalues.KNOWN)) | st.text(max_size=5), texts)
@example("new", "garp_master_repeat", "5")
@example("apart", "track_interface", "{ eth9 weight 5 }")
@example("new", "x }\nvrrp_script y {", "5")
def test_one_statement(spec: str, keyword: str, value: str) -> None:
    """An accepted entry of a Service is one more statement in its instance; a refused one changes nothing."""
    found = confparser.named(confparser.read(text({keyword: value}, spec=spec)))
    bare = BARE[spec]
    assert found.keys() == bare.keys() == NEIGHBOURS
    mine = ("vrrp_instance", "a/b")
    assert all(found[block] == bare[block] for block in bare if block != mine)
    more = [each for each in found[mine] if each not in bare[mine]]
    less = [each for each in bare[mine] if each not in found[mine]]
    assert all(each.words[0] in ("preempt_delay", "nopreempt") for each in less)  # of the group, which it replaces
    accepted = not verbatim.read_service(json.dumps({keyword: value}), allowed=keywordvalues.EVERY).refusals
    assert len(more) <= accepted
    assert all(each.words[0] == keyword and keyword in keywordvalues.KNOWN for each in more)


@pytest.mark.slow
@examples(150)
@given(st.sampled_from(sorted(keywordvalues.KNOWN_GLOBALLY)) | st.text(max_size=5), texts)
@example("router_id", "edge")
@example("startup_script", '"/bin/echo a b"')
def test_one_global_statement(keyword: str, value: str) -> None:
    """An accepted entry of a group is one statement of ``global_defs``, and changes no instance."""
    found = confparser.named(confparser.read(text(globally={keyword: value})))
    bare = BARE["new"]
    assert found.keys() == bare.keys()
    assert all(found[block] == bare[block] for block in bare if block != ("global_defs",))
    more = [each for each in found["global_defs",] if each not in bare["global_defs",]]
    accepted = bool(keywordvalues.accepted_globally({keyword: value}))
    assert len([each for each in more if each.words[0] == keyword]) <= accepted
    assert {each.words[0] for each in more} <= {keyword, "script_user"}
    assert all(not each.body and len(each.words) <= 2 for each in more)


@pytest.mark.parametrize("value", ESCAPES, ids=lambda value: repr(value[:20]))
def test_injections_are_refused(value: str) -> None:
    """No keyword accepts a value that could leave its line."""
    taken = [keyword for keyword, known in keywordvalues.KNOWN.items() if keywordvalues.takes(known, value)]
    taken += [keyword for keyword, known in keywordvalues.KNOWN_GLOBALLY.items() if keywordvalues.takes(known, value)]
    assert taken == []


def test_listed_keywords_are_plain_words() -> None:
    """Each listed keyword is one plain word, is on one list of an instance, and is not one that kavip writes."""
    for keyword in (*keywords.SERVICE, *keywords.ALLOWABLE, *keywords.GLOBAL, *keywords.GLOBAL_SCRIPTS):
        assert keywords.KEYWORD.fullmatch(keyword)
        assert not keywords.is_kavips(keyword)
    assert not keywords.SERVICE.keys() & keywords.ALLOWABLE.keys()
    for keyword in (*keywords.SERVICE, *keywords.ALLOWABLE, *keywords.GLOBAL):
        assert not keywords.runs_programs(keyword)


def test_the_interface_of_a_route_is_not_localised() -> None:
    """
    Where each node finds its interface by itself, the agent writes it into VIPs and instances, not into users' lines.
    """
    group = build.group(**keywordvalues.SPECS["new"], interface_from_ip="192.0.2.1", allow_verbatim=["virtual_routes"])
    wanted = json.dumps({"virtual_routes": "{ 10.0.0.0/8 dev eth5 }"})
    rendered = conf(group, [annotated("a/b", "192.0.2.130", verbatim=wanted)], nodes(1))
    held = InterfaceAddress(VirtualIP(parse_address("192.0.2.11"), 24, "ens3"))
    facts = NodeFacts("n1", interfaces=frozenset({"ens3"}), held=(held,))
    local = localize(mounted(rendered, interface_from_ip="192.0.2.1"), facts)
    assert isinstance(local, LocalizedConfig)
    assert not local.excluded
    assert "to 10.0.0.0/8 dev eth5" in local.text
    assert "eth0" not in local.text
