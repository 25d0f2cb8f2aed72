"""A published text is read back: the instances that it makes nodes run, with their identities and VIPs."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api import address
from kavip.api.group import PasswordAuth, SecretRef
from kavip.memo import Memory
from kavip.vrrp import config, running
from kavip.vrrp.identity import identity_of
from kavip.vrrp.running import first_nodes, instances_of, is_read_in_full, running_instances, running_nodes
from tests.support import build
from tests.vrrp.samples import NEW, annotated, conf, model, nodes, shared

SERVICES = [annotated("a/web", "192.0.2.130", "192.0.2.131", "2001:db8::1"), annotated("b/one", "192.0.2.9")]
GROUPS = {
    "a new group": NEW,
    "a group of keepalived-operator": {"password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"))},
    "Shared mode": {**NEW, "instances": shared(3)},
    "other interfaces": {"vrrp_interface": "eth1", "advert_interval_milliseconds": 3000},
}


@pytest.mark.parametrize("spec", GROUPS.values(), ids=GROUPS)
def test_a_text_gives_back_its_instances(spec: dict[str, Any]) -> None:
    """The text of any group gives back the identity of each instance and its VIPs."""
    wanted = model(build.group(**spec), SERVICES, nodes(2))
    found = running_instances(config.render(wanted).text)
    assert {name: each.identity for name, each in found.items()} == {
        each.name: identity_of(each) for each in wanted.instances
    }
    assert found == instances_of(wanted)
    held = [str(vip.address) for each in found.values() for vip in each.virtual_ips]
    assert sorted(held) == ["192.0.2.130", "192.0.2.131", "192.0.2.9", "2001:db8::1"]


def test_blocks_that_stay_are_not_read_again() -> None:
    """With a memory, an instance whose block is the same in the next text is the same object."""
    memory, group = Memory(), build.group(**NEW)
    before = running_instances(conf(group, SERVICES, nodes(2)), memory)
    after = running_instances(conf(group, [*SERVICES, annotated("c/new", "192.0.2.10")], nodes(2)), memory)
    assert before.keys() < after.keys()
    assert all(after[name] is run for name, run in before.items())
    assert after == running_instances(conf(group, [*SERVICES, annotated("c/new", "192.0.2.10")], nodes(2)))


def test_of_a_large_text_only_new_addresses_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of the largest Shared group, in which one change of each instance makes all of them be read again."""
    head = "    virtual_router_id 1\n    interface eth0\n    version 3\n    advert_int 1\n"
    vips = [f"        10.{n >> 16}.{n >> 8 & 255}.{n & 255}/32 dev eth0\n" for n in range(1, 30_001)]

    def read(lines: list[str]) -> int:
        anchor, others = lines[0], "".join(lines[1:])
        lists = f"    virtual_ipaddress {{\n{anchor}    }}\n    virtual_ipaddress_excluded {{\n{others}    }}\n"
        return len(running_instances(f"vrrp_instance group/0 {{\n{head}{lists}}}\n")["group/0"].virtual_ips)

    parsed: list[str] = []

    def counted(text: str) -> IPv4Address | IPv6Address:
        parsed.append(text)
        return ip_address(text)

    assert read(vips) == len(vips)
    monkeypatch.setattr(address, "ip_address", counted)
    assert read([*vips, "        10.99.0.1/32 dev eth0\n"]) == len(vips) + 1
    assert parsed == ["10.99.0.1"]


def test_of_several_instances_with_one_name_the_last_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other is compared with the list of the one that was read before, which may be long."""
    text, memory = conf(build.group(**NEW), SERVICES, nodes(2)), Memory()
    name, _, _ = text.partition("vrrp_instance ")[2].partition(" ")
    wanted, read = running_instances(text, memory), list[str]()
    parse = running._read

    def counted(name: str, *rest: Any) -> Any:
        read.append(name)
        return parse(name, *rest)

    monkeypatch.setattr(running, "_read", counted)
    head, mark, rest = text.partition("vrrp_instance ")
    assert running_instances(head + f"vrrp_instance {name} {{\n}}\n" * 2_000 + mark + rest, memory) == wanted
    assert len(read) == len(wanted)


@given(st.lists(st.tuples(*(st.integers(0, 2_000),) * 2, st.sampled_from(("", "}", "\n}", "\n    }\n", " # ")))))
def test_with_a_memory_any_text_is_read_as_without(cuts: list[tuple[int, int, str]]) -> None:
    """One after the other, each with another part replaced."""
    text, memory = conf(build.group(**NEW), SERVICES, nodes(2)), Memory()
    for begin, length, put in cuts:
        changed = text[:begin] + put + text[begin + length :]
        assert running_instances(changed, memory) == running_instances(changed)
    assert running_instances(text, memory) == running_instances(text)


@given(st.text(alphabet="vrp_instace {}\n1.:/ @#dev", max_size=300))
def test_any_text_can_be_read(text: str) -> None:
    """A text that kavip did not write has no instances, and reading it does not raise."""
    assert not running_instances(text)
    running_nodes(text)
    assert not first_nodes(text)


@pytest.mark.parametrize("spec", GROUPS.values(), ids=GROUPS)
def test_what_kavip_writes_is_read_in_full(spec: dict[str, Any]) -> None:
    """So a text with an instance or a line for a node that is not read is not kavip's."""
    text = conf(build.group(no_preempt=True, **spec), SERVICES, nodes(2))
    assert is_read_in_full(text, running_instances(text))
    for part, edit in (("vrrp_instance ", "vrrp_instance $"), ("    @n1 priority ", "    @n1 priority 9999")):
        edited = text.replace(part, edit, 1)
        assert edited != text
        assert not is_read_in_full(edited, running_instances(edited))


@pytest.mark.parametrize(
    "line",
    ["{}/129 dev eth0", "{}/0 dev eth0", "{}/32 dev e123456789abcdef", "{}/32", "", "{}/32 dev eth0 }", "}", "# }"],
)
def test_a_list_with_a_line_that_kavip_never_writes_is_not_read_in_full(line: str) -> None:
    """Its VIP would look like one that does not run; also in the list that is not advertised."""
    text = conf(build.group(**NEW), [annotated("a/web", "192.0.2.130", "192.0.2.131")], nodes(2))
    for vip in ("192.0.2.130", "192.0.2.131"):
        written = f"        {vip}/32 dev eth0\n"
        assert text.count(written) == 1
        edited = text.replace(written, f"        {line.replace('{}', vip)}\n")
        assert not is_read_in_full(edited, running_instances(edited))


@pytest.mark.parametrize(
    "head",
    [
        "    virtual_ipaddress_excluded  {\n",
        "    virtual_ipaddress_excluded {\r\n",
        "{0}    }}\n{0}",
        "{0}    }}\n\n{0}",
    ],
)
def test_a_list_with_another_head_is_not_read_in_full(head: str) -> None:
    """Nor one that is there twice."""
    text = conf(build.group(**NEW), [annotated("a/web", "192.0.2.130", "192.0.2.131")], nodes(2))
    written = "    virtual_ipaddress_excluded {\n"
    assert text.count(written) == 1
    edited = text.replace(written, head.format(written) if "{0}" in head else head)
    unclosed = text.removesuffix("    }\n}\n") + "}\n"
    assert unclosed != text
    for each in (edited, unclosed):
        assert not is_read_in_full(each, running_instances(each))


def test_a_text_gives_back_its_first_nodes() -> None:
    """The highest priority among the nodes that are not dead; an instance that follows endpoints has none."""
    services = [*SERVICES, annotated("c/local", "192.0.2.10", external_traffic_policy="Local")]
    wanted = model(build.group(**NEW), services, nodes(3))
    text = config.render(wanted).text
    expected = {each.name: dict(each.priorities) for each in wanted.instances if each.name != "c/local"}
    assert first_nodes(text) == {name: max(drawn, key=drawn.__getitem__) for name, drawn in expected.items()}
    for drawn in expected.values():
        del drawn["n1"]
    found = first_nodes(text, dead=frozenset({"n1"}))
    assert found == {name: max(drawn, key=drawn.__getitem__) for name, drawn in expected.items()}


def test_a_text_gives_back_the_nodes_that_are_away() -> None:
    """Only what kavip writes before the first instance is read."""
    wanted = model(build.group(**NEW), SERVICES, nodes(3))
    text = config.render(replace(wanted, dead=("n1", "n3"))).text
    assert running_nodes(text).dead == {"n1", "n3"}
    assert running_nodes(text + "# kavip: dead n2\n").dead == {"n1", "n3"}
    assert running_nodes(config.render(wanted).text).dead == frozenset()


def test_the_nodes_of_instances_of_two_kinds() -> None:
    """From multicast to unicast: the first instance is in multicast still, and ends with the line of a node."""
    old = config.render(model(build.group(**{**NEW, "unicast_enabled": False}), SERVICES[:1], nodes(3))).text
    new = config.render(model(build.group(**NEW), SERVICES[1:], nodes(2))).text
    found, alone = running_nodes(old + new[new.index("vrrp_instance") :]), running_nodes(new)
    assert found.listed == {"n1", "n2", "n3"}
    assert found.accepted == alone.accepted and found.sources == alone.sources
