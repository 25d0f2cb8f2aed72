"""Lines that users add."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.refusal import Refusal
from kavip.names import VERBATIM_ANNOTATION, Reason
from kavip.vrrp import grammar, keywords, members, verbatim
from kavip.vrrp.grammar import Line
from tests.support import build
from tests.vrrp.samples import annotated


def lines(wanted: dict[str, Any], **more: Any) -> tuple[Line, ...]:
    """The lines of a valid annotation."""
    found = verbatim.read_service(json.dumps(wanted), **more)
    assert not found.refusals
    return found.lines


def refusal(wanted: dict[str, Any], **more: Any) -> Refusal:
    """The refusals of an invalid annotation."""
    found = verbatim.summary(verbatim.read_service(json.dumps(wanted), **more).refusals)
    assert found
    return found


def test_sorted_lines() -> None:
    """Lines are sorted by keyword, and blanks around values are removed."""
    assert lines({"track_src_ip": "", "nopreempt": "", "garp_master_repeat": " 2 "}) == (
        Line("garp_master_repeat", ("2",)),
        Line("nopreempt"),
        Line("track_src_ip"),
    )


@pytest.mark.parametrize("text", ["", " ", "{}"])
def test_an_empty_annotation(text: str) -> None:
    """No annotation, or an empty one, gives no lines."""
    assert verbatim.read_service(text) == verbatim.VerbatimResult()


@pytest.mark.parametrize("text", ["[]", "3", "{", '"x"', "null", "[" * 100_000, '{"a": "\ud800"}'])
def test_not_a_json_object(text: str) -> None:
    """A text that is no JSON object is refused in one short line."""
    (found,) = verbatim.read_service(text).refusals
    assert found.reason is Reason.INVALID_VERBATIM
    assert "want a JSON object of strings" in found.message
    assert len(found.message) < 400


def test_value_must_be_a_string() -> None:
    """keepalived-operator dropped the whole annotation without a message for this; kavip names the entry."""
    assert '{"priority": 150}: want a string' in refusal({"priority": 150}).message


def test_one_line_blocks() -> None:
    """A one-line block in a value, which keepalived-operator accepted, becomes a block."""
    assert lines({"track_interface": "{ eth1 }"}) == (Line("track_interface", block=("eth1",)),)
    assert lines({"track_interface": "{eth1 weight -20}"})[0].block == ("eth1", "weight", "-20")


@pytest.mark.parametrize("value", ["eth1", "{ eth1 eth2 }", "{ include }", "{ eth1 weight 300 }", "{ eth1 } }", "{ }"])
def test_track_interface_grammar(value: str) -> None:
    """One interface and a weight that keepalived accepts are accepted; nothing that could be read as an include is."""
    assert "want { INTERFACE }" in refusal({"track_interface": value}).message


def test_track_interface_of_the_group() -> None:
    """A Service may name only interfaces of its group, unless the group allows it any."""
    wanted = {"track_interface": "{ eth7 }"}
    assert "want an interface of the group (eth0, eth1)" in refusal(wanted, interfaces=("eth1", "eth0")).message
    assert lines(wanted, interfaces=("eth0",), allowed=("track_interface",))


def test_track_interface_where_nodes_differ() -> None:
    """Where nodes find their interface by address, no other one may be tracked: it may be the instance's own."""
    service = annotated("a/b", "192.0.2.130", verbatim='{"track_interface": "{ ens3 }"}')
    for address, count in (("", 0), ("192.0.2.1", 1)):
        group = build.group(allow_verbatim=["track_interface"], interface_from_ip=address)
        assert len(members.verbatim_of(service, group.spec).refusals) == count


def test_nopreempt_is_refused_with_policy_local() -> None:
    """nopreempt would keep the VIP where no endpoint is, so it is refused with Local, as the group's noPreempt is."""
    notes = {VERBATIM_ANNOTATION: '{"nopreempt": "", "garp_master_repeat": "2"}'}
    for policy, count in (("Cluster", 0), ("Local", 1)):
        service = build.service("a/b", annotations=notes, external_traffic_policy=policy)
        found = members.verbatim_of(service, build.group().spec)
        assert [refusal.reason for refusal in found.refusals] == [Reason.INVALID_VERBATIM] * count
        assert bool(members.member_of(service, build.group()).problem) == bool(count)


def test_all_findings() -> None:
    """All problems are reported; the summary is one line that begins with the field."""
    wanted = {"notify": "/bin/sh", "garp_master_repeat": "x", "preempt": "", "state": "MASTER"}
    found = verbatim.read_service(json.dumps(wanted))
    assert [finding.reason for finding in found.refusals] == [Reason.INVALID_VERBATIM] * 4
    message = refusal(wanted).message
    assert message.startswith(f"{verbatim.FIELD}: 'garp_master_repeat x': want 1 to 20")
    assert message.count(verbatim.FIELD) == 1
    assert all(text in message for text in ("runs programs", "kavip writes", "spec.allowVerbatim"))


def test_many_findings_stay_one_line() -> None:
    """Control characters of an annotation are escaped in the message."""
    message = refusal({f"x{number}\n": "\x1b[2J" for number in range(verbatim.MOST_KEYWORDS)}).message
    assert message.endswith(f"and {verbatim.MOST_KEYWORDS - 5} more")
    assert len(message) < 2000
    assert message.isprintable()


def test_priority_and_interval_are_accepted_and_not_rendered() -> None:
    """Keywords of old installations pass with a warning each, and give no line."""
    found = verbatim.read_service('{"priority": "150", "advert_int": "1"}')
    assert (found.lines, found.refusals) == ((), ())
    assert [warning.rpartition(": ")[0].split(": ")[1].split()[0] for warning in found.warnings] == [
        "advert_int",
        "priority",
    ]


def test_preempt_delay_excludes_nopreempt() -> None:
    """keepalived would drop one of them, with a message that the agent's check treats as an error."""
    assert "exclude each other" in refusal({"nopreempt": "", "preempt_delay": "5"}).message


def test_group_may_allow_more() -> None:
    """allowVerbatim adds keywords; their values are plain words or one block."""
    allowed = ("dont_track_primary", "virtual_routes")
    assert lines({"dont_track_primary": ""}, allowed=allowed) == (Line("dont_track_primary"),)
    assert lines({"virtual_routes": "{ 10.0.0.0/8 via 192.0.2.1 dev eth0 }"}, allowed=allowed)[0].block[:2] == (
        "to",
        "10.0.0.0/8",
    )
    assert "want an empty value" in refusal({"dont_track_primary": "x"}, allowed=allowed).message
    assert "another file" in refusal({"virtual_routes": "{ include /etc/passwd }"}, allowed=allowed).message


@pytest.mark.parametrize("keyword", ["notify_master", "track_script", "virtual_router_id", "unicast_peer", "state"])
def test_group_may_not_allow_everything(keyword: str) -> None:
    """Keywords that run programs or that kavip writes stay refused even where a group lists them."""
    assert refusal({keyword: "x"}, allowed=(keyword,)).message


def test_global_lines() -> None:
    """Each entry of a group has its own field path."""
    found = verbatim.read_global({"vrrp_iptables": "x", "vrrp_garp_master_refresh": "60"}, allow_scripts=False)
    assert found.lines == (Line("vrrp_garp_master_refresh", ("60",)),)
    assert [finding.field for finding in found.refusals] == ["spec.verbatimConfig[vrrp_iptables]"]
    assert verbatim.read_global(None, allow_scripts=False) == verbatim.VerbatimResult()


def test_scripts_only_where_allowed() -> None:
    """Programs need allowScripts; they become one quoted word, whether or not they were quoted."""
    wanted = {"startup_script": '"/bin/echo a=b"'}
    (refused,) = verbatim.read_global(wanted, allow_scripts=False).refusals
    assert "set spec.allowScripts" in refused.message
    expected = (Line("startup_script", ("/bin/echo", "a=b"), quoted=True),)
    assert verbatim.read_global(wanted, allow_scripts=True).lines == expected
    assert verbatim.read_global({"startup_script": "/bin/echo a=b"}, allow_scripts=True).lines == expected


@pytest.mark.parametrize(
    "keyword", ["include", "config_save_dir", "script_user", "enable_script_security", "lvs_flush"]
)
def test_global_keywords_that_are_always_refused(keyword: str) -> None:
    """Some keywords are refused whatever the group allows."""
    assert verbatim.read_global({keyword: "/x"}, allow_scripts=True).refusals


def test_the_nearest_keyword_is_named() -> None:
    """A mistyped keyword is refused with the nearest one of its list; one without a near keyword is only refused."""
    assert "did you mean garp_master_repeat?" in refusal({"garp_master_repeats": "2"}).message
    assert "did you mean dont_track_primary?" in keywords.instance_problem("dont_track_primari")
    (found,) = verbatim.read_global({"vrrp_garp_intervall": "1"}, allow_scripts=False).refusals
    assert "did you mean vrrp_garp_interval?" in found.message
    assert "did you mean" not in refusal({"frobnicate": "1"}).message
    assert "spec.verbatimConfig" in refusal({"vrrp_garp_interval": "1"}).message


@pytest.mark.parametrize("keyword", ["use_vmac", "strict_mode", "track_bfd", "smtp_alert", "vrf", "vmac_garp_intvl"])
def test_known_keywords_that_no_group_may_allow(keyword: str) -> None:
    """A keyword of keepalived that no group may allow is refused with the reason, not as unknown."""
    message = refusal({keyword: "x"}, allowed=(keyword,)).message
    assert f"'{keyword} x'" in message
    assert "not a keyword" not in message
    assert message.endswith("; remove it")


def test_too_many_keywords_are_refused() -> None:
    """An annotation or a group with more entries than keywords exist is refused without a look at the entries."""
    many = {f"x{number}": "" for number in range(verbatim.MOST_KEYWORDS + 1)}
    assert "'65 keywords': want at most 64" in refusal(many).message
    (found,) = verbatim.read_global(many, allow_scripts=True).refusals
    assert found.message == "spec.verbatimConfig: '65 keywords': want at most 64"


VALUES = st.text() | st.from_regex(r"[0-9. -]{1,8}", fullmatch=True) | st.sampled_from(["", "{ eth1 }", "MTU", "2"])
KNOWN = sorted(
    {**keywords.SERVICE, **keywords.ALLOWABLE, **keywords.NOT_RENDERED, **keywords.GLOBAL, **keywords.GLOBAL_SCRIPTS}
)


@given(st.dictionaries(st.sampled_from(KNOWN) | st.text(), VALUES, max_size=5))
def test_accepted_lines_are_plain_words(wanted: dict[str, str]) -> None:
    """Every word of every accepted line is one plain word, and so is the keyword."""
    found = [
        *verbatim.read_service(json.dumps(wanted), allowed=wanted.keys()).lines,
        *verbatim.read_global(wanted, allow_scripts=True).lines,
    ]
    for line in found:
        assert keywords.KEYWORD.fullmatch(line.keyword)
        assert all(grammar.COMMAND_WORD.fullmatch(word) for word in (*line.words, *line.block))
        assert not line.block or not line.block[0].startswith("include")


@pytest.mark.parametrize(("requested", "least"), [("1", "10"), ("9", "10"), ("10", "10"), ("60", "60"), ("0", "0")])
def test_a_service_cannot_flood_the_network_with_announcements(requested: str, least: str) -> None:
    """A short refresh interval is raised with a warning, not refused: stored annotations may have it."""
    wanted = {"garp_master_refresh": requested, "garp_master_refresh_repeat": "10"}
    found = verbatim.read_service(json.dumps(wanted))
    assert found.refusals == ()
    assert Line("garp_master_refresh", (least,)) in found.lines
    assert [f"counts as {least}" in warning for warning in found.warnings] == [True] * (requested != least)
    allowed = verbatim.read_service(json.dumps(wanted), allowed=["garp_master_refresh"])
    assert (allowed.lines[0], allowed.warnings) == (Line("garp_master_refresh", (requested,)), ())
