"""``/state`` and ``agent.json`` between this version and 0.1.0, in both directions."""

import json
import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from kavip.api.agent import (
    LONG_LIST,
    SEPARATOR,
    AdvertErrors,
    AgentState,
    CheckReport,
    ExcludedReport,
    InstanceReport,
    KeepalivedReport,
    LocalReport,
    NodeProblem,
    ProblemCode,
    RefusedBy,
    by_hash,
    decode_state,
    hash_of,
)
from kavip.api.agentconfig import AgentConfig, LocalTrack, RevisionConfig, decode_config, encode_config
from kavip.api.group import CaFrom, Check
from kavip.reconcile.observed.agent import counts_of, node_state
from tests.api.released_0_1_0 import types as old
from tests.support.manifests import ROOT

RELEASED: Final = Path(__file__).parent / "released_0_1_0"
STATES: Final = {each.stem: each.read_bytes() for each in sorted((RELEASED / "state").iterdir())}
CONFIGS: Final = {each.stem: each.read_bytes() for each in sorted((RELEASED / "agent").iterdir())}


# --- lists by hash ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("count", "is_hashed"), [(0, False), (LONG_LIST, False), (LONG_LIST + 1, True)])
def test_long_lists_of_vips_are_replaced_by_hashes(count: int, is_hashed: bool) -> None:
    """Short ones stay."""
    vips = tuple(f"10.0.{number // 200}.{number % 200}" for number in range(count))
    instances = (InstanceReport(name="group/0", virtual_ips=vips), InstanceReport(name="group/1"))
    full = AgentState(group="lb/edge", instances=instances)
    found = by_hash(full)
    first, second = found.instances
    assert (first.virtual_ips_hash, first.virtual_ips) == ((hash_of(vips), ()) if is_hashed else ("", vips))
    assert second == full.instances[1]
    assert decode_state(msgspec.json.encode(found)) == found


def test_a_list_that_stands_twice_is_refused() -> None:
    """No VIP is in two instances. A short answer could otherwise name a long list in each of a thousand instances."""
    twice = [InstanceReport(name=name, virtual_ips_hash=hash_of(("192.0.2.1",))) for name in ("group/0", "group/1")]
    with pytest.raises(msgspec.ValidationError, match="same virtual IPs"):
        decode_state(msgspec.json.encode(AgentState(group="lb/edge", instances=tuple(twice))))


# --- an agent of 0.1.0 with this controller ---------------------------------------------------------------------------
REFUSED: Final = {
    "mount-is-gone": ProblemCode.MOUNT_UNREADABLE,
    "mount-is-no-text": ProblemCode.MOUNT_INVALID,
    "agent-json-is-damaged": ProblemCode.MOUNT_INVALID,
    "text-and-agent-json-differ": ProblemCode.MOUNT_INVALID,
    "password-is-missing": ProblemCode.PASSWORD_MISSING,
    "password-is-unusable": ProblemCode.PASSWORD_INVALID,
    "password-is-not-the-predecessors": ProblemCode.PASSWORD_MISMATCH,
    "password-is-not-accepted": ProblemCode.PASSWORD_NOT_ACCEPTED,
    "line-outside-instances": ProblemCode.CONFIG_INVALID,
    "no-global-defs": ProblemCode.CONFIG_INVALID,
    "instance-stands-twice": ProblemCode.CONFIG_INVALID,
    "no-instance-is-left": ProblemCode.NO_INSTANCE,
    "keepalived-names-a-line-outside": ProblemCode.REFUSED_BY_KEEPALIVED,
    "keepalived-names-nothing": ProblemCode.REFUSED_BY_KEEPALIVED,
    "keepalived-crashes": ProblemCode.REFUSED_BY_KEEPALIVED,
    "search-has-no-end": ProblemCode.REFUSED_BY_KEEPALIVED,
    "keepalived-cannot-check": ProblemCode.CONFIG_TEST_FAILED,
    "keepalived-cannot-be-run": ProblemCode.CONFIG_TEST_FAILED,
    "keepalived-cannot-be-forked": ProblemCode.CONFIG_TEST_FAILED,
    "keepalived-hangs": ProblemCode.CONFIG_TEST_FAILED,
    "run-directory-is-full": ProblemCode.RUN_DIRECTORY_UNWRITABLE,
    "run-directory-takes-no-candidate": ProblemCode.RUN_DIRECTORY_UNWRITABLE,
    "run-directory-lost-the-candidate": ProblemCode.CONFIG_TEST_FAILED,
    "reload-is-not-confirmed": ProblemCode.RELOAD_NOT_CONFIRMED,
    "reload-ends-the-daemon": ProblemCode.KEEPALIVED_EXITED,
    "reload-daemon-was-killed": ProblemCode.KEEPALIVED_KILLED,
}
NEXT_REFUSED: Final = {
    "next-is-damaged": ProblemCode.MOUNT_INVALID,
    "next-does-not-belong": ProblemCode.MOUNT_INVALID,
    "next-instance": ProblemCode.CONFIG_INVALID,
    "next-line": ProblemCode.CONFIG_INVALID,
    "next-password-missing": ProblemCode.PASSWORD_MISSING,
    "next-goes-astray": ProblemCode.SOURCE_ADDRESS_ELSEWHERE,
}
EXCLUDED: Final = {
    "instance-line": ProblemCode.CONFIG_INVALID,
    "instance-line-kept": ProblemCode.CONFIG_INVALID,
    "instance-without-vrid": ProblemCode.CONFIG_INVALID,
    "instance-without-interface": ProblemCode.CONFIG_INVALID,
    "instance-doubled-address": ProblemCode.CONFIG_INVALID,
    "instance-follows-nothing": ProblemCode.CONFIG_INVALID,
    "instance-address-conflict": ProblemCode.CONFIG_CONFLICT,
    "instance-vrid-conflict": ProblemCode.CONFIG_CONFLICT,
    "instance-node-address": ProblemCode.NODE_ADDRESS,
    "instance-interface-missing": ProblemCode.INTERFACE_MISSING,
    "instance-source-gone": ProblemCode.SOURCE_ADDRESS_UNUSABLE,
    "instance-source-tentative": ProblemCode.SOURCE_ADDRESS_UNUSABLE,
    "instance-source-doubled": ProblemCode.SOURCE_ADDRESS_UNUSABLE,
    "instance-keepalived-line": ProblemCode.REFUSED_BY_KEEPALIVED,
    "instance-keepalived-name": ProblemCode.REFUSED_BY_KEEPALIVED,
    "no-instance-is-left": ProblemCode.INTERFACE_MISSING,
}
NOTED: Final = {
    "note-interface-from-ip": (ProblemCode.INTERFACE_MISSING,),
    "note-interface-behind-gateway": (ProblemCode.INTERFACE_MISSING,),
    "note-source-gone": (ProblemCode.SOURCE_ADDRESS_UNUSABLE,),
    "note-source-on-other-interface": (ProblemCode.SOURCE_ADDRESS_ELSEWHERE,),
    "note-no-ipv4": (ProblemCode.NO_IPV4_ADDRESS,),
    "note-strict-arp": (ProblemCode.STRICT_ARP_OFF,),
    "note-keepalived-version": (ProblemCode.KEEPALIVED_UNTESTED,),
    "note-keepalived-version-unknown": (ProblemCode.KEEPALIVED_UNTESTED,),
    "note-track-files": (ProblemCode.TRACK_FILES_IGNORED,),
    "note-check-fails": (ProblemCode.CHECK_FAILING,),
    "note-check-cannot-be-asked": (ProblemCode.CHECK_NOT_RUN,),
    "note-check-url": (ProblemCode.CHECK_NOT_RUN,),
    "note-agent-failed": (ProblemCode.AGENT_FAILED,),
    "notes-together": (ProblemCode.STRICT_ARP_OFF, ProblemCode.KEEPALIVED_UNTESTED, ProblemCode.CHECK_FAILING),
    "keepalived-cannot-be-run": (ProblemCode.KEEPALIVED_UNTESTED,),
    "keepalived-cannot-be-forked": (ProblemCode.KEEPALIVED_UNTESTED,),
}


@pytest.mark.parametrize("case", STATES)
def test_states_of_0_1_0_get_codes(case: str) -> None:
    """Each message has its code, and no message is lost."""
    raw, state = json.loads(STATES[case]), decode_state(STATES[case])
    assert state.refused_code == REFUSED.get(case, ProblemCode.NONE)
    assert state.next_refused_code == NEXT_REFUSED.get(case, ProblemCode.NONE)
    assert {each.code for each in state.left_out} == ({EXCLUDED[case]} if raw["leftOut"] else set())
    assert tuple(each.code for each in state.notes) == NOTED.get(case, ())
    assert (state.refused, state.next_refused) == (raw["refused"], raw["nextRefused"])
    assert SEPARATOR.join(each.message for each in state.notes) == raw["note"][:200]
    assert node_state(state).note == raw["note"][:200]


def test_every_case_of_0_1_0_is_covered() -> None:
    """The tables above name each body that reports a problem."""
    reported = {name for name, body in STATES.items() if any(json.loads(body)[key] for key in ("refused", "note"))}
    reported |= {
        name for name, body in STATES.items() if any(json.loads(body)[key] for key in ("leftOut", "nextRefused"))
    }
    assert reported == {*REFUSED, *NEXT_REFUSED, *EXCLUDED, *NOTED}


def test_the_rest_of_a_state_of_0_1_0_is_read() -> None:
    """Instances with their counters, endpoints, checks, the announced switch."""
    sound = decode_state(STATES["sound"])
    web = next(each for each in sound.instances if each.name == "shop/web")
    assert (web.router_id, web.state, web.virtual_ips) == (27, "MASTER", ("192.0.2.130", "2001:db8:2::130"))
    assert web.errors == AdvertErrors(address_list=3, authentication=2, interval=1)
    assert (sound.keepalived.running, sound.keepalived.version) == (True, "2.2.7")
    assert {each.ready for each in decode_state(STATES["local"]).locals} == {True, False, None}
    assert [each.ok for each in decode_state(STATES["note-check-fails"]).checks] == [False, False]
    announced = decode_state(STATES["announced"])
    assert (announced.prepared, announced.switch_at) == ("what is next", "2026-09-21T14:13:40.000Z")
    (kept,) = decode_state(STATES["instance-line-kept"]).left_out
    assert (kept.kept, kept.by) == (True, RefusedBy.AGENT)
    (found,) = decode_state(STATES["instance-keepalived-name"]).left_out
    assert (found.kept, found.by) == (False, RefusedBy.KEEPALIVED)


def test_every_code_stands_once_in_the_reference() -> None:
    """The tables of docs/reference/agent.md list all codes, and no other."""
    page = (ROOT / "docs" / "reference" / "agent.md").read_text().partition("### Codes")[2].partition("\n### ")[0]
    listed = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `")))
    assert sorted(listed) == sorted({each.value for each in ProblemCode} - {"", "Other"})


# --- an agent of this version with a controller of 0.1.0 --------------------------------------------------------------
FULL: Final = AgentState(
    node="n1",
    group="lb/edge",
    config_hash="0123456789abcdef",
    wanted_hash="fedcba9876543210",
    refused="password: the Secret that passwordAuth names is not mounted, or lacks the key",
    refused_code=ProblemCode.PASSWORD_MISSING,
    note="a note; another one",
    notes=(NodeProblem(ProblemCode.STRICT_ARP_OFF, "a note"), NodeProblem(ProblemCode.CHECK_FAILING, "another one")),
    keepalived=KeepalivedReport(version="2.3.1", running=True),
    instances=(
        InstanceReport(
            name="shop/web",
            router_id=27,
            family=4,
            state="MASTER",
            virtual_ips=("192.0.2.130",),
            priority=250,
            last_transition="2026-09-21T14:13:40.000Z",
            interface="eth0",
            transitions=3,
            errors=AdvertErrors(authentication=2),
            anchor="192.0.2.130",
        ),
    ),
    left_out=(
        ExcludedReport(
            name="shop/cart",
            reason="keepalived --config-test: exit status 5",
            by=RefusedBy.KEEPALIVED,
            kept=True,
            virtual_ips=("192.0.2.131",),
            code=ProblemCode.REFUSED_BY_KEEPALIVED,
        ),
    ),
    checks=(CheckReport(name="web", ok=False, since="2026-09-21T14:13:40.000Z", message="status 503"),),
    prepared="0011223344556677",
    next_refused="line 4: longer than 512 bytes",
    next_refused_code=ProblemCode.CONFIG_INVALID,
    switch_at="2026-09-21T14:13:40.000Z",
    now="2026-09-21T14:13:20.000Z",
    new_password="2026-09-21T14:12:00.000Z",
    locals=(LocalReport(track="local-0123456789abcdef", ready=None),),
)


def test_a_controller_of_0_1_0_reads_this_state() -> None:
    """It decodes every field that it declares, and ignores the codes."""
    found = old.report_of(msgspec.json.encode(FULL))
    known = msgspec.to_builtins(found)
    assert known.keys() == {msgspec.structs.fields(old.Report)[n].encode_name for n in range(13)}
    assert_within(known, msgspec.to_builtins(FULL))
    assert found.refused.startswith(old.SECRET_MISSING)


def test_an_empty_state_has_every_field_that_0_1_0_sent() -> None:
    """Programs that read ``/state`` find each field, also where there is nothing to report."""
    for body, state in ((STATES["sound"], decode_state(STATES["sound"])), (STATES["prepared"], AgentState(group="g"))):
        assert json.loads(msgspec.json.encode(state)).keys() >= json.loads(body).keys()
    for key, kind in (("instances", InstanceReport), ("leftOut", ExcludedReport), ("checks", CheckReport)):
        sent = {name for body in STATES.values() for each in json.loads(body)[key] for name in each}
        assert sent <= json.loads(msgspec.json.encode(kind(name="x"))).keys()


def test_codes_of_a_later_version_are_read() -> None:
    """They are Other: the message beside them is for people."""
    body = b'{"group": "g", "refused": "x", "refusedCode": "New", "notes": [{"code": "New", "message": "y"}]}'
    state = decode_state(body)
    assert state.refused_code is ProblemCode.OTHER
    assert state.notes == (NodeProblem(ProblemCode.OTHER, "y"),)
    assert decode_state(b'{"group": "g", "leftOut": [{"name": "x", "by": "new"}]}').left_out[0].by is RefusedBy.AGENT


@pytest.mark.parametrize(
    "more",
    [
        {"notes": [{"code": "Other", "message": "x"}] * 1025},
        {"checks": [{"name": "x"}] * 1025},
        {"leftOut": [{"name": "x", "virtualIPs": ["192.0.2.1"] * 140_000}]},
        {"notes": [{"code": 7, "message": "x"}]},
    ],
    ids=("too many notes", "too many checks", "too many VIPs", "no code"),
)
def test_a_state_that_no_agent_sends_is_refused(more: dict[str, Any]) -> None:
    """The node may be compromised: what it sends is bounded."""
    with pytest.raises(msgspec.MsgspecError):
        decode_state(json.dumps({"group": "g", **more}).encode())


def test_notes_that_are_passed_on_are_one_short_line() -> None:
    """However many there are, and however long."""
    notes = [{"code": "Other", "message": "x\ny " * 100}, {"code": "CheckFailing", "message": "z"}] * 500
    found = node_state(decode_state(json.dumps({"group": "g", "notes": notes}).encode()))
    assert len(found.note) == 200 and "\n" not in found.note
    old_agent = node_state(decode_state(json.dumps({"group": "g", "note": "x\ny; " * 100_000}).encode()))
    assert len(old_agent.note) <= 200 and "\n" not in old_agent.note


def test_texts_that_are_passed_on_are_printable() -> None:
    """A compromised node cannot send escape sequences or bidirectional controls to terminals."""
    hostile = "no\x1b[2J \u202eetsil\u2066\x00\x9b \u2028 end\n"
    excluded = {"name": hostile, "reason": hostile}
    sent: dict[str, Any] = {
        "group": "g",
        "refused": hostile,
        "nextRefused": hostile,
        "note": hostile,
        "leftOut": [excluded],
    }
    instance = {"name": hostile, "interface": hostile, "state": hostile, "virtualIPs": ["192.0.2.130"]}
    sent["instances"] = [instance | {"routerID": 1, "family": 4}]
    state = decode_state(json.dumps(sent).encode())
    found = node_state(state)
    (left_out,), (reported,), (runs,) = found.excluded, found.instances, found.instance_of.values()
    texts = [found.refused, found.next_refused, found.note, left_out.name, left_out.reason]
    texts += [reported.state, reported.name, runs]
    texts += [text for trace in counts_of(state) for text in (trace.instance, trace.interface)]
    assert all(text.isprintable() and text.startswith("no[2J etsil") for text in texts)


# --- agent.json -------------------------------------------------------------------------------------------------------
SWITCHING: Final = AgentConfig(
    config_hash="0123456789abcdef",
    interface_from_ip="192.0.2.1",
    secret="vrrp",
    secret_key="password",
    password="0a344d7f/password",
    renewals=3,
    group="lb/edge",
    authentication=True,
    static=True,
    next=RevisionConfig(
        config_hash="fedcba9876543210",
        interface_from_ip="192.0.2.2",
        secret="other",
        secret_key="key",
        password="d9298a10/key",
        renewals=4,
        renewed=True,
    ),
    next_hash="91e278124b245b93",
    switch_at="2026-09-21T14:13:40.000Z",
    tries=2,
    blame="node n2: its clock differs",
    leads=("shop/web",),
    checks=(Check("web", "http://127.0.0.1:8080/", weight=50, ca_from=CaFrom("ca", kind="Secret")),),
    locals=(LocalTrack(track="local-0123456789abcdef", port=30001), LocalTrack(track="local-x", nodes=("n1", "n2"))),
    interfaces=("eth0", "vlan20"),
)


@pytest.mark.parametrize("case", CONFIGS)
def test_agent_json_of_0_1_0_is_read_and_written_alike(case: str) -> None:
    """Nothing in it is lost, and the same content is the same text: an upgrade writes no ConfigMap for it."""
    config = decode_config(CONFIGS[case])
    assert config is not None
    text = encode_config(config)
    assert json.loads(text) == json.loads(CONFIGS[case])
    assert text.encode() == CONFIGS[case] or case == "static"  # kavip render adds a word to that one


def test_agent_json_is_read_by_an_agent_of_0_1_0() -> None:
    """Every field that it declares has the same value."""
    text = encode_config(SWITCHING)
    known = msgspec.to_builtins(msgspec.json.decode(text, type=old.Mounted))
    assert {*known} == {each.encode_name for each in msgspec.structs.fields(old.Mounted)}
    assert_within(known, json.loads(text))


def test_agent_json_is_read_back_by_a_controller_of_0_1_0() -> None:
    """After a roll-back the older controller continues with the published configuration."""
    text = encode_config(SWITCHING)
    known = msgspec.to_builtins(msgspec.json.decode(text, type=old.Record))
    assert {*known} == {each.encode_name for each in msgspec.structs.fields(old.Record)} - {"renewed"}  # of next alone
    assert_within(known, json.loads(text))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"configHash": 7}', '{"x": ' + "[" * 100_000])
def test_a_text_that_is_no_agent_json_is_none(text: str) -> None:
    """Another client may have written it."""
    assert decode_config(text) is None


def assert_within(part: Any, whole: Any) -> None:
    """Assert that *whole* contains all of *part*."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert key in whole, key
            assert_within(value, whole[key])
    elif isinstance(part, list | tuple):
        assert len(part) == len(whole)
        for one, other in zip(part, whole, strict=True):
            assert_within(one, other)
    else:
        assert part == whole
