"""What a template of keepalived.conf gets, what kavip takes from its outcome, and what it refuses."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.group import ConfigTemplateRef, KeepalivedGroup
from kavip.vrrp import config
from kavip.vrrp.addedlines import MOST_LINES, published_lines, read_added
from kavip.vrrp.configtemplate import (
    MARK,
    NO_LINES,
    AddedLines,
    RenderRequest,
    TemplateFault,
    context_of,
    request_of,
    with_lines,
)
from kavip.vrrp.grammar import Line
from kavip.vrrp.instances import Model
from kavip.vrrp.running import instances_without_preemption, node_orders, running_instances, running_nodes
from tests.support import build
from tests.support.examples import examples
from tests.vrrp.samples import NEW, annotated, model, nodes, shared

SERVICES = [
    annotated("a/web", "192.0.2.130", "2001:db8::1"),
    annotated("b/one", "192.0.2.9", verbatim='{"garp_master_delay": "3"}'),
]
WEB, ONE = "vrrp_instance a/web {", "vrrp_instance b/one {"
GROUPS: dict[str, dict[str, Any]] = {
    "a new group": NEW,
    "a group of keepalived-operator": {},
    "Shared mode": {**NEW, "instances": shared(3)},
}


def templated(**spec: Any) -> KeepalivedGroup:
    """A group with a template."""
    return build.group(**{**NEW, "config_template_ref": ConfigTemplateRef("t"), **spec})


def a_model(**spec: Any) -> Model:
    """The model of a group with two Services on two nodes."""
    services = [each for each in SERVICES if "instances" not in spec or each.key == "a/web"]
    return model(templated(**spec), services, nodes(2))


def request(template: str = "", **spec: Any) -> RenderRequest:
    """The request for a group with *spec*."""
    wanted = a_model(**spec)
    return request_of(templated(**spec), template, wanted, config.render(wanted).text)


def inserted(own: str, after: str, *lines: str) -> str:
    """*own* with *lines* after the first line *after*."""
    head, found, tail = own.partition(f"{after}\n")
    assert found
    return "".join([head, found, *(f"{each}\n" for each in lines), tail])


def read(*lines: str, after: str = "global_defs {", template: str = "", **spec: Any) -> AddedLines | TemplateFault:
    """What is read from kavip's own text with *lines* after the line *after*."""
    asked = request(template, **spec)
    return read_added(asked, inserted(asked.own, after, *lines))


def lines_of(found: AddedLines | TemplateFault) -> AddedLines:
    """*found*, which is no fault."""
    assert isinstance(found, AddedLines), str(found)
    return found


# --- what it gets -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("spec", GROUPS.values(), ids=GROUPS)
def test_the_parts_of_the_context_are_the_whole_text(spec: dict[str, Any]) -> None:
    """A template that prints all parts in their order adds nothing."""
    asked = request(**spec)
    parts = msgspec.json.decode(asked.context)
    blocks = [f"vrrp_instance {each['name']} {{\n{each['lines']}\n}}" for each in parts["instances"]]
    assert blocks == [each["text"] for each in parts["instances"]]
    printed = "\n".join([parts["header"], "global_defs {", parts["global_defs"], "}", parts["track_files"], *blocks])
    found = lines_of(read_added(asked, printed))
    assert not found.globals
    assert set(found.instances.values()) == {()}
    assert [*found.instances] == sorted(each["name"] for each in parts["instances"])


def test_the_context_describes_each_instance() -> None:
    """A template reads name, family, VRID, interface, Services and VIPs as data."""
    parts = msgspec.json.decode(request().context)
    assert parts["group"] == {"name": "edge", "namespace": "lb", "labels": {}}
    first = parts["instances"][0]
    assert (first["name"], first["family"], first["interface"]) == ("a/web", 4, "eth0")
    assert first["services"] == ["a/web"]
    assert first["virtual_ips"] == ["192.0.2.130"]


def test_the_digest_depends_on_each_part() -> None:
    """A change of the template, of kavip's text, of the context, or of what it may add is another request."""
    asked = request("a")
    others = [
        replace(asked, template="b"),
        replace(asked, context=b"{}"),
        replace(asked, own="c"),
        replace(asked, interfaces=frozenset({"eth9"})),
        replace(asked, allowed=frozenset({"preempt"})),
    ]
    assert len({each.digest for each in (asked, *others)}) == 6
    assert request("a").digest == asked.digest


# --- what is taken ----------------------------------------------------------------------------------------------------
def test_lines_are_read_as_values() -> None:
    """Blanks and comments do not matter, and lines come in the order of their keywords."""
    found = lines_of(read("  vrrp_no_swap", "", "# why", "\tvrrp_min_garp   "))
    assert [each.keyword for each in found.globals] == ["vrrp_min_garp", "vrrp_no_swap"]
    found = lines_of(read("garp_master_delay 2", "accept", after=WEB))
    assert found.instances["a/web"] == (Line("accept"), Line("garp_master_delay", ("2",)))
    assert found.instances["b/one"] == ()


def test_a_block_of_one_line_is_read() -> None:
    """As keepalived writes it, over three lines."""
    found = lines_of(read("track_interface {", "  eth7", "}", after=WEB, allow_verbatim=["track_interface"]))
    assert found.instances["a/web"] == (Line("track_interface", block=("eth7",)),)


@pytest.mark.parametrize("spec", GROUPS.values(), ids=GROUPS)
def test_added_lines_change_no_instance_and_no_node(spec: dict[str, Any]) -> None:
    """The text with them says the same of instances, identities, addresses and nodes, and gives the lines back."""
    spec = {**spec, "allow_verbatim": ["track_interface"]}
    wanted, group = a_model(**spec), templated(**spec)
    added = AddedLines(
        (Line("vrrp_min_garp"), Line("vrrp_no_swap")),
        {each.name: (Line("accept"), Line("track_interface", block=("eth7",))) for each in wanted.instances},
    )
    own, text = config.render(wanted).text, config.render(with_lines(group, wanted, added)).text
    assert text.count(MARK) == 1 + len(wanted.instances)
    assert running_instances(text) == running_instances(own)
    assert running_nodes(text) == running_nodes(own)
    assert node_orders(text) == node_orders(own)
    back = published_lines(text)
    assert (back.globals, {**back.instances}) == (added.globals, {**added.instances})
    assert published_lines(own) == NO_LINES


def test_without_lines_no_byte_changes() -> None:
    """A group whose template adds nothing has kavip's own text."""
    wanted = a_model()
    assert with_lines(templated(), wanted, NO_LINES) == wanted


def test_lines_that_no_longer_fit_are_left_out() -> None:
    """A line of an older template yields to the line that a Service has gained."""
    twice = (Line("accept"), Line("accept"), Line("no_accept"))
    added = AddedLines((), {"b/one": (Line("garp_master_delay", ("9",)), *twice)})
    group = templated(allow_verbatim=["no_accept"])
    one = next(each for each in with_lines(group, a_model(), added).instances if each.name == "b/one")
    assert one.added == (Line("accept"),)


def test_a_template_adds_no_programs() -> None:
    """The author of the ConfigMap may be another one than that of the group, so allowScripts makes no difference."""
    for line in ("startup_script /bin/true", "notify_fifo /tmp/f"):
        for allow_scripts in (False, True):
            found = read(line, allow_scripts=allow_scripts)
            assert "runs programs or writes files; set it in spec.verbatimConfig" in str(found)
    text = request().own.replace("}\n", f"    {MARK}\n    startup_script /bin/true\n}}\n", 1)
    assert published_lines(text) == NO_LINES


def test_keywords_of_allow_verbatim_need_it() -> None:
    """Routes, rules and interfaces concern the whole node; lines that were allowed once are left out."""
    line = "virtual_routes { 198.51.100.0/24 via 192.0.2.1 dev eth0 }"
    assert "virtual_routes: the group must list it in spec.allowVerbatim" in str(read(line, after=WEB))
    spec: dict[str, Any] = {"allow_verbatim": ["virtual_routes"]}
    found = lines_of(read(line, after=WEB, **spec))
    assert MARK in config.render(with_lines(templated(**spec), a_model(**spec), found)).text
    assert with_lines(templated(), a_model(), found) == a_model()


def test_frequent_announcements_need_the_group() -> None:
    """As for Services, a network is not flooded; the group decides otherwise."""
    assert "garp_master_refresh: want 0, or 10 and more" in str(read("garp_master_refresh 9", after=WEB))
    assert "vrrp_garp_master_refresh: want 0, or 10 and more" in str(read("vrrp_garp_master_refresh 1"))
    for line, spec in (("garp_master_refresh 9", ["garp_master_refresh"]), ("garp_master_refresh 0", [])):
        lines_of(read(line, after=WEB, allow_verbatim=spec))


# --- what is refused --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "after", "message"),
    [
        ("vrrp_iptables", "global_defs {", "vrrp_iptables: it is for VIPs that accept no packets"),
        ("include /etc/passwd", "global_defs {", "include: not a keyword of global_defs"),
        ("script_user nobody", "global_defs {", "script_user: kavip writes this keyword itself"),
        ("vrrp_version 2", "global_defs {", "vrrp_version: set spec.vrrpVersion"),
        ("router_id x", "global_defs {", "router_id: is set already"),
        ("vrrp_min_garp $X", "global_defs {", "vrrp_min_garp: $ begins a macro"),
        ("virtual_router_id 9", WEB, "virtual_router_id: kavip writes this keyword itself"),
        ("@n1 priority 254", WEB, "@n1: not a keyword"),
        ("notify /bin/sh", WEB, "notify: it runs programs"),
        ("include x", WEB, "include: it runs programs or reads files"),
        ("nopreempt", WEB, "nopreempt: set spec.noPreempt"),
        ("use_vmac", WEB, "use_vmac: it makes interfaces"),
        ("garp_master_delay 1", ONE, "garp_master_delay: is set already"),
        ("garp_master_delay 99999", WEB, "garp_master_delay: want "),
        ("track_interface { eth7 }", WEB, "track_interface: the group must list it in spec.allowVerbatim"),
        ("preempt", WEB, "preempt: set spec.noPreempt"),
        ("debug 4", WEB, "debug: the group must list it in spec.allowVerbatim"),
        ("track_script {", WEB, "track_script: it runs programs"),
        ("track_file {", WEB, "track_file: kavip writes this keyword itself"),
        ("unicast_peer {", WEB, "unicast_peer: kavip writes this keyword itself"),
        ("priority 254", WEB, "priority: kavip writes this keyword itself"),
        ("authentication {", WEB, "authentication: kavip writes this keyword itself"),
        ("smtp_alert", WEB, "smtp_alert: it sends mail"),
        ("! a comment of keepalived", WEB, "!: not a keyword"),
        ("$X=accept", WEB, "$X=accept: not a keyword"),
        ("~SEQ(X,1,9) accept", WEB, "~SEQ(X,1,9): not a keyword"),
        ('"accept"', WEB, '"accept": not a keyword'),
        ("ACCEPT", WEB, "ACCEPT: not a keyword"),
        ("garp_master_delay\t2", WEB, "garp_master_delay 2: not a keyword"),
        ("garp_master_delay 2 # x", WEB, "garp_master_delay: # begins a comment"),
        ("garp_master_delay 2 ! x", WEB, "garp_master_delay: ! begins a comment"),
        ("garp_master_delay ~SEQ(X,1,9)", WEB, "garp_master_delay: ~ repeats lines"),
        ('garp_master_delay "2"', WEB, "garp_master_delay: want 0 to 600"),
        ("garp_master_delay '2'", WEB, "garp_master_delay: ' does not quote"),
        ("garp_master_delay 2 \\", WEB, "garp_master_delay: \\ is an escape"),
        ("garp_master_delay 2 }", WEB, "garp_master_delay: a brace begins or ends a block"),
        ("garp_master_delay 2\x00", WEB, "garp_master_delay: U+0000 is a control character"),
        ("garp_master_delay 2\rnotify x", WEB, "garp_master_delay: a line break begins another line"),
        ("garp_master_delay 2\u2028notify x", WEB, "garp_master_delay: U+2028 is not ASCII"),
        ("garp_master_delay ٢", WEB, "garp_master_delay: U+0662 is not ASCII"),
        ("garp_master_delay " + "2" * 600, WEB, "garp_master_delay: longer than 512 characters"),
        ("virtual_server 192.0.2.1 80 {", "}", "lines can be added in global_defs and in instances only"),
        ("vrrp_sync_group x {", "}", "lines can be added in global_defs and in instances only"),
        ("static_routes {", "}", "lines can be added in global_defs and in instances only"),
        ("$X=accept", "}", "lines can be added in global_defs and in instances only"),
        ("include /etc/passwd", "}", "lines can be added in global_defs and in instances only"),
        ("lvs_sync_daemon eth0 x", "global_defs {", "lvs_sync_daemon: not a keyword of global_defs"),
        ("vrrp_process_name x", "global_defs {", "vrrp_process_name: kavip writes this keyword itself"),
        ("notify_fifo_script /bin/sh", "global_defs {", "notify_fifo_script: runs programs or writes files"),
        ("10.0.0.1/32 dev eth0", "    virtual_ipaddress {", "lines can be added in global_defs and in instances only"),
        ("}", "global_defs {", "kavip's line 'router_id edge' of global_defs is missing before this one"),
        ("vrrp_script x {", "}", "lines can be added in global_defs and in instances only"),
        ("x" * 600, WEB, "xxxx"),
    ],
)
def test_other_lines_are_refused(line: str, after: str, message: str) -> None:
    """Each with the place in the outcome, or in the template where the line is there as it is."""
    found = read(line, after=after)
    assert isinstance(found, TemplateFault)
    assert f"of the outcome: {message}" in str(found)
    located = read(f"   {line}", after=after, template=f"first\n  {line}\n")
    assert isinstance(located, TemplateFault)
    assert (located.line, located.column) == (2, 3)


def test_interfaces_that_are_tracked_anyway_are_refused() -> None:
    """keepalived says so on stderr, and the agent's check treats any output as an error."""
    spec: dict[str, Any] = {"interface_from_ip": "192.0.2.11", "allow_verbatim": ["track_interface"]}
    found = read("track_interface { eth0 }", after=WEB, **spec)
    assert "keepalived tracks this interface anyway" in str(found)


@pytest.mark.parametrize(
    "drop",
    ["    virtual_router_id 1", "    @n1 priority", "        192.0.2.130/32", "vrrp_instance b/one {", "    state"],
)
def test_a_line_of_kavip_must_not_be_missing(drop: str) -> None:
    """No name, VRID, priority or address can be left out or moved."""
    asked = request()
    kept = asked.own.split("\n")
    gone = next(index for index, each in enumerate(kept) if each.startswith(drop))
    without = [*kept[:gone], *kept[gone + 1 :]]
    assert isinstance(read_added(asked, "\n".join(without)), TemplateFault)
    moved = [*without, kept[gone]]
    assert isinstance(read_added(asked, "\n".join(moved)), TemplateFault)


LINES = st.sampled_from(
    [
        "", "# x", "}", "{", "accept", "no_accept", "dynamic_interfaces", "vrrp_min_garp", "virtual_router_id 1",
        "state MASTER", "@n1 priority 254", "    @n1 priority 1", "priority 254", "virtual_ipaddress {",
        "192.0.2.130/32 dev eth0", "track_interface { eth7 }", "track_interface {", "eth7", "vrrp_instance a/web {",
        "vrrp_instance x {", "global_defs {", "include /etc/passwd", "nopreempt", "# kavip: template",
        "# kavip: authentication", "garp_master_delay 2 }", "garp_master_delay 2\r", "accept\x0bnopreempt",
        "virtual_routes { 192.0.2.0/24 via 192.0.2.1 }",
    ]
)  # fmt: skip


@pytest.mark.slow
@examples(300)
@given(st.data())
def test_no_outcome_changes_what_kavip_decided(data: st.DataObject) -> None:
    """Lines are added, left out and moved anywhere: it is a fault, or the text says of instances and nodes the same."""
    spec: dict[str, Any] = {"allow_verbatim": ["virtual_routes", "track_interface"]}
    asked, wanted = request(**spec), a_model(**spec)
    lines = asked.own.split("\n")
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(lines)))
        match data.draw(st.sampled_from(["add", "drop", "move"])):
            case "add":
                lines.insert(place, data.draw(LINES))
            case "drop":
                del lines[place : place + 1]
            case "move":
                moved = lines[place : place + 1]
                del lines[place : place + 1]
                other = data.draw(st.integers(0, len(lines)))
                lines[other:other] = moved
    found = read_added(asked, "\n".join(lines))
    if isinstance(found, TemplateFault):
        assert str(found).isprintable()
        return
    text = config.render(with_lines(templated(**spec), wanted, found)).text
    assert running_instances(text) == running_instances(asked.own)
    assert running_nodes(text) == running_nodes(asked.own)
    assert node_orders(text) == node_orders(asked.own)
    assert instances_without_preemption(text) == instances_without_preemption(asked.own)
    kept = [each for each in text.split("\n") if each in asked.own.split("\n")]
    assert [each for each in asked.own.split("\n") if each not in kept] == []


def test_an_outcome_that_ends_early_is_refused() -> None:
    """The message names the first line that is missing."""
    asked = request()
    assert "is missing at the end; print the finished text whole" in str(read_added(asked, asked.own[:-3]))
    assert isinstance(read_added(asked, ""), TemplateFault)


def test_the_number_of_lines_is_bounded() -> None:
    """A template cannot make kavip read lines without end."""
    asked = request()
    found = read_added(asked, inserted(asked.own, WEB, *["x y"] * (MOST_LINES + 1)))
    assert isinstance(found, TemplateFault)


def test_the_context_is_text_of_kavip() -> None:
    """It is the same for the same model, in any order of the objects."""
    wanted = a_model()
    text = config.render(wanted).text
    assert context_of(templated(), wanted, text) == context_of(templated(), a_model(), text)
