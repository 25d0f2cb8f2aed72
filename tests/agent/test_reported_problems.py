"""Every problem of a node that ``/state`` reports: its code, and its message as a controller of 0.1.0 reads it."""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest

from kavip.agent import network
from kavip.agent.config.facts import InterfaceAddress, KernelRoute
from kavip.agent.conflicts import detection
from kavip.agent.conflicts.verdicts import Answer, Finding
from kavip.agent.keepalived.configtest import ConfigTest, FailedTest, Program
from kavip.agent.keepalived.reload import ConfigReloader
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.mount import PasswordFiles
from kavip.agent.reconciler import Reconciler
from kavip.agent.report.health import CheckHealth, CheckStatus
from kavip.agent.report.state import agent_state, encode
from kavip.agent.rtnetlink import NetworkChange
from kavip.api.address import parse_address
from kavip.api.agent import SEPARATOR, NodeProblem, ProblemCode, decode_state
from kavip.api.group import Check
from kavip.cli.views.doctor.inspection import agent_answer
from kavip.cli.views.doctor.nodes import interfaces
from kavip.reconcile.observed.agent import node_state
from kavip.reconcile.plan import Key, KeyKind
from kavip.vrrp.virtualips import VirtualIP
from tests.agent import mounts
from tests.agent.config.test_localize import held
from tests.api.released_0_1_0 import types as released
from tests.cli.views.doctor.soundcluster import sound
from tests.reconcile.group.settledgroup import READY, condition, settled, with_pods
from tests.reconcile.simulatedcluster import GROUP, agent_states, pod
from tests.support import build

TEXT: Final = mounts.rendered({"shop/web": "192.0.2.130,2001:db8:2::130", "shop/cart": "192.0.2.131"})
EMPTY: Final = mounts.rendered({})
IPV4: Final = mounts.rendered({"shop/web": "192.0.2.130"})
MULTICAST: Final = mounts.rendered({"shop/web": "192.0.2.130"}, unicast_enabled=False)
SECRET: Final = mounts.rendered({"shop/web": "192.0.2.130"}, **mounts.WITH_PASSWORD)
LOOPBACK, OWN4, OWN6 = held("127.0.0.1/8", "lo"), held("192.0.2.11/24"), held("2001:db8:2::11/64")
MOVED: Final = (LOOPBACK, held("192.0.2.11/24", "eth1"), held("192.0.2.99/24"))
NEW: Final = {"conflictDetection": {"probe": ["192.0.2.131"]}}
FOLLOWS: Final = {"static": True, "follow": {}}
NAMED: Final = {"authentication": True, "password": "vrrp/password"}
WEB: Final = Check("web", "http://127.0.0.1:8080/")
ROUTE: Final = {"pool": "dmz", "interface": "eth0", "table": 1020, "gateways": ["192.0.2.1"], "addresses": []}
OLD: Final = b"vrrp_instance a {\n  authentication {\n    auth_pass theirs\n  }\n}\n"


def lines(text: str, name: str, line: str) -> str:
    """*text* with a line more in the instance *name*."""
    head, opening, rest = text.partition(f"vrrp_instance {name} {{\n")
    return f"{head}{opening}    {line}\n{rest}"


def failing(code: ProblemCode, **more: Any) -> Callable[[str], FailedTest | None]:
    """A config test that fails for texts with the word ``lethal``."""
    return lambda text: FailedTest(code, "it fails", **more) if "lethal" in text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is mounted on a node, what the node is like, and which problems it must report."""

    text: str = TEXT
    meta: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] | None = None
    password: str = ""
    following: str = ""
    interfaces: frozenset[str] = frozenset({"lo", "eth0"})
    held: tuple[InterfaceAddress, ...] = (LOOPBACK, OWN4, OWN6)
    route: KernelRoute | None = None
    check: Callable[[str], FailedTest | None] = lambda _: None
    version: str = "2.2.7"
    before: Callable[[Reconciler], object] = lambda _: None
    refused: ProblemCode = ProblemCode.NONE
    next_refused: ProblemCode = ProblemCode.NONE
    excluded: ProblemCode = ProblemCode.NONE
    noted: ProblemCode = ProblemCode.NONE


def install_fails(reconciler: Reconciler) -> None:
    """Let the run directory be full; something is installed already."""
    reconciler._reloader.installed = reconciler._reloader.good
    full = OSError(28, "No space left on device")
    mock.patch.object(RunDirectory, "install", side_effect=full).start()
    mock.patch.object(ConfigReloader, "ensure_installed", mock.AsyncMock()).start()


def has_failed(code: ProblemCode) -> Callable[[Reconciler], object]:
    """Let every configuration have failed when keepalived read it."""

    def before(reconciler: Reconciler) -> None:
        problem = NodeProblem(code, "it failed")
        mock.patch.object(reconciler._reloader.failures, "problem", lambda _: problem).start()

    return before


def run_other_password(reconciler: Reconciler) -> None:
    """Let the other nodes run another password."""
    joining = reconciler._desired.joining
    joining._rejected, joining._until = mounts.PASSWORD, float("inf")


def without_list(reconciler: Reconciler) -> None:
    """Let the node take part in a static group, and the API server not answer."""
    peers = reconciler.peers
    peers._own = replace(peers._own, sends={each.address.family: each.address for each in (OWN4, OWN6)})
    peers._unread = "no answer within 5 s"


def with_checks(*statuses: CheckStatus) -> Callable[[Reconciler], object]:
    """Let health checks have these results."""

    def before(reconciler: Reconciler) -> None:
        checks = reconciler.feeds.checks
        checks.configure = mock.AsyncMock()  # type: ignore[method-assign]  # of this one
        checks._statuses = {each.check.name: each for each in statuses}

    return before


def not_routed(code: ProblemCode) -> Callable[[Reconciler], object]:
    """Let replies of a pool not be routed."""

    def before(reconciler: Reconciler) -> None:
        reconciler.return_routing._failed = (NodeProblem(code, "replies are not routed"),)

    return before


def ignored(reconciler: Reconciler) -> None:
    """Let keepalived not follow its track files."""
    with mock.patch.object(reconciler.feeds.tracks, "verify", lambda _: False):
        reconciler.feeds.verify(())


def the_lan_answers(answer: Answer, hardware: str = "") -> Callable[[Reconciler], object]:
    """Let this be the answer about every VIP."""

    def before(_: Reconciler) -> None:
        async def inquire(vips: Collection[VirtualIP], *_: object) -> Mapping[VirtualIP, Finding]:
            return dict.fromkeys(vips, Finding(answer, hardware))

        mock.patch.object(detection, "inquire", inquire).start()

    return before


CASES: Final[dict[str, Case]] = {
    "nothing": Case(),
    "mount gone": Case(files={}, refused=ProblemCode.MOUNT_UNREADABLE),
    "mount is no text": Case(
        files={"keepalived.conf": b"\xff", "agent.json": b"{}"}, refused=ProblemCode.MOUNT_INVALID
    ),
    "agent.json damaged": Case(files={"keepalived.conf": b"", "agent.json": b"{"}, refused=ProblemCode.MOUNT_INVALID),
    "hash differs": Case(meta={"configHash": "0" * 16}, refused=ProblemCode.MOUNT_INVALID),
    "password missing": Case(text=SECRET, meta=NAMED, refused=ProblemCode.PASSWORD_MISSING),
    "password invalid": Case(text=SECRET, meta=NAMED, password="much too long", refused=ProblemCode.PASSWORD_INVALID),
    "password of keepalived-operator": Case(
        files={
            "kavip.conf": SECRET.encode(),
            "keepalived.conf": OLD,
            "agent.json": json.dumps({"configHash": mounts.hash_of(SECRET), "group": "lb/edge", **NAMED}).encode(),
        },
        password="ours",
        refused=ProblemCode.PASSWORD_MISMATCH,
    ),
    "password not accepted": Case(
        text=SECRET,
        meta=NAMED,
        password=mounts.PASSWORD,
        before=run_other_password,
        refused=ProblemCode.PASSWORD_NOT_ACCEPTED,
    ),
    "line outside instances": Case(
        text=TEXT.replace("router_id edge", "router_id edge # x"), refused=ProblemCode.CONFIG_INVALID
    ),
    "no instance left": Case(
        text=TEXT.replace("eth0", "eth9"), refused=ProblemCode.NO_INSTANCE, excluded=ProblemCode.INTERFACE_MISSING
    ),
    "keepalived refuses all": Case(
        text=TEXT.replace("router_id edge", "router_id lethal"),
        check=failing(ProblemCode.REFUSED_BY_KEEPALIVED),
        refused=ProblemCode.REFUSED_BY_KEEPALIVED,
    ),
    "config test fails": Case(
        text=TEXT.replace("router_id edge", "router_id lethal"),
        check=failing(ProblemCode.CONFIG_TEST_FAILED),
        refused=ProblemCode.CONFIG_TEST_FAILED,
    ),
    "run directory full": Case(before=install_fails, refused=ProblemCode.RUN_DIRECTORY_UNWRITABLE),
    **{
        f"after {code.value}": Case(before=has_failed(code), refused=code)
        for code in (
            ProblemCode.RELOAD_NOT_CONFIRMED,
            ProblemCode.KEEPALIVED_EXITED,
            ProblemCode.KEEPALIVED_KILLED,
        )
    },
    "line of an instance": Case(text=lines(TEXT, "shop/cart", "state ~x"), excluded=ProblemCode.CONFIG_INVALID),
    "address in two instances": Case(
        text=TEXT.replace("192.0.2.131", "192.0.2.130"), excluded=ProblemCode.CONFIG_CONFLICT
    ),
    "node's address": Case(text=TEXT.replace("192.0.2.131/32", "192.0.2.11/24"), excluded=ProblemCode.NODE_ADDRESS),
    "interface of a VIP missing": Case(
        text=TEXT.replace("192.0.2.131/32 dev eth0", "192.0.2.131/32 dev vip0"),
        excluded=ProblemCode.INTERFACE_MISSING,
    ),
    "interface of a group without VIPs missing": Case(
        text=EMPTY, meta={"interfaces": ["eth0", "eth9"]}, noted=ProblemCode.INTERFACE_MISSING
    ),
    "IPv6 source gone": Case(held=(LOOPBACK, OWN4), excluded=ProblemCode.SOURCE_ADDRESS_UNUSABLE),
    "VIP of another machine": Case(
        meta=NEW, before=the_lan_answers(Answer.CLAIMED, "02:00:c0:00:02:63"), excluded=ProblemCode.ADDRESS_CONFLICT
    ),
    "LAN not asked": Case(meta=NEW, before=the_lan_answers(Answer.UNABLE), noted=ProblemCode.CONFLICTS_UNDETECTED),
    "keepalived refuses an instance": Case(
        text=lines(TEXT, "shop/cart", "lethal"),
        check=failing(ProblemCode.REFUSED_BY_KEEPALIVED, names=("shop/cart",)),
        excluded=ProblemCode.REFUSED_BY_KEEPALIVED,
    ),
    "interfaceFromIP": Case(meta={"interfaceFromIP": "198.51.100.1"}, noted=ProblemCode.INTERFACE_MISSING),
    "interfaceFromIP behind a gateway": Case(
        meta={"interfaceFromIP": "198.51.100.1"},
        held=(held("10.0.0.1/24"),),
        route=KernelRoute(parse_address("198.51.100.1"), "eth0"),
        noted=ProblemCode.INTERFACE_MISSING,
    ),
    "all sources gone": Case(held=(LOOPBACK,), noted=ProblemCode.SOURCE_ADDRESS_UNUSABLE),
    "source elsewhere": Case(
        text=IPV4,
        interfaces=frozenset({"lo", "eth0", "eth1"}),
        held=MOVED,
        noted=ProblemCode.SOURCE_ADDRESS_ELSEWHERE,
    ),
    "no IPv4 address": Case(text=MULTICAST, held=(LOOPBACK, OWN6), noted=ProblemCode.NO_IPV4_ADDRESS),
    "strict ARP": Case(interfaces=frozenset({"lo", "eth0", "kube-ipvs0"}), noted=ProblemCode.STRICT_ARP_OFF),
    "strict filter": Case(meta={"routes": [ROUTE]}, noted=ProblemCode.REQUESTS_FILTERED),
    "routing table of the kernel": Case(
        meta={"routes": [{**ROUTE, "table": 254}]}, noted=ProblemCode.RETURN_ROUTE_INVALID
    ),
    "routing table of another program": Case(
        before=not_routed(ProblemCode.ROUTING_TABLE_IN_USE), noted=ProblemCode.ROUTING_TABLE_IN_USE
    ),
    "no nftables": Case(before=not_routed(ProblemCode.RETURN_ROUTE_FAILED), noted=ProblemCode.RETURN_ROUTE_FAILED),
    "a node that joins a static group": Case(meta=FOLLOWS, noted=ProblemCode.WAITS_FOR_PEER),
    "no list of nodes": Case(meta=FOLLOWS, before=without_list, noted=ProblemCode.NODES_UNKNOWN),
    "untested version": Case(version="2.0.20", noted=ProblemCode.KEEPALIVED_UNTESTED),
    "no version": Case(version="", noted=ProblemCode.KEEPALIVED_UNTESTED),
    "track files ignored": Case(before=ignored, noted=ProblemCode.TRACK_FILES_IGNORED),
    "check fails": Case(before=with_checks(CheckStatus(WEB, CheckHealth(False))), noted=ProblemCode.CHECK_FAILING),
    "check cannot run": Case(before=with_checks(CheckStatus(WEB, blocked="no CA")), noted=ProblemCode.CHECK_NOT_RUN),
    "next damaged": Case(meta={"next": {"configHash": "0" * 16}}, next_refused=ProblemCode.MOUNT_INVALID),
    "next has a faulty instance": Case(
        following=lines(TEXT, "shop/cart", "state ~x"), next_refused=ProblemCode.CONFIG_INVALID
    ),
    "next without password": Case(
        text=MULTICAST,
        following=SECRET,
        meta={"next": {"configHash": mounts.hash_of(SECRET), "password": "vrrp/password"}},
        next_refused=ProblemCode.PASSWORD_MISSING,
    ),
}


async def reported(case: Case, folder: Path) -> bytes:
    """The body of ``/state`` after one step on the node of *case*."""
    (run := folder / "run").mkdir()
    (secret := folder / "passwords" / "vrrp").mkdir(parents=True)
    if case.password:
        (secret / "password").write_text(case.password)
    (arp := folder / "arp_ignore").write_text("0\n")
    (conf := folder / "conf" / "eth0").mkdir(parents=True)
    (conf / "rp_filter").write_text("1\n")
    mount = mounts.Mount(folder / "config")
    if case.files is None:
        mount.write(case.text, case.following, **case.meta)
    else:
        mount.swap(dict(case.files))
    files = RunDirectory(run)
    config_test = mock.Mock(spec=ConfigTest)
    config_test.program.return_value, config_test.check = Program(case.version, 36), case.check

    async def read(_: object = None) -> network.Reading:
        links = tuple(network.Interface(name, number) for number, name in enumerate(sorted(case.interfaces), start=1))
        return network.Reading(links, case.held, case.route)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(network, "read", read))
        stack.enter_context(mock.patch.object(network, "_ARP_IGNORE", arp))
        stack.enter_context(mock.patch.object(network, "_CONF", conf.parent))
        stack.callback(mock.patch.stopall)
        node = Reconciler(
            node="n1",
            node_ip=parse_address("192.0.2.11"),
            config_dir=mount.path,
            passwords=PasswordFiles(folder / "passwords"),
            run_directory=files,
            config_test=config_test,
        )
        await node.start()
        case.before(node)
        await node.step()
        await node.feeds.checks.close()
        return encode(agent_state(node.status, None, {}))


@pytest.mark.parametrize("name", CASES)
async def test_a_problem_has_its_code(name: str, tmp_path: Path) -> None:
    """In the field of its kind, beside its message, and in no other."""
    case = CASES[name]
    body = await reported(case, tmp_path)
    state = decode_state(body)
    assert state.refused_code == case.refused, state.refused
    assert state.next_refused_code == case.next_refused, state.next_refused
    assert {each.code for each in state.left_out} == ({case.excluded} - {ProblemCode.NONE})
    assert [each.code for each in state.notes] == ([case.noted] if case.noted else [])
    raw = json.loads(body)
    assert raw["refusedCode"] == case.refused.value and bool(raw["refused"]) is bool(case.refused)
    assert bool(raw["nextRefused"]) is bool(case.next_refused)


@pytest.mark.parametrize("name", CASES)
async def test_a_controller_of_0_1_0_reads_the_messages(name: str, tmp_path: Path) -> None:
    """It recognizes a missing password by the beginning of the message, and splits ``note`` at semicolons."""
    case = CASES[name]
    found = released.report_of(await reported(case, tmp_path))
    secret = case.refused in (ProblemCode.PASSWORD_MISSING, ProblemCode.PASSWORD_MISMATCH)
    assert found.refused.startswith(released.SECRET_MISSING) is secret
    assert found.next_refused.startswith(released.SECRET_MISSING) is (case.next_refused is ProblemCode.PASSWORD_MISSING)
    assert len([each for each in found.note.split(SEPARATOR) if each]) == bool(case.noted)
    assert len(found.refused) <= 200
    assert {each.by for each in found.left_out} <= {"agent", "keepalived"}


async def test_a_step_that_failed_is_a_note(tmp_path: Path) -> None:
    """Beside the results of health checks."""

    def fail(node: Reconciler) -> None:
        with_checks(CheckStatus(WEB, CheckHealth(False)))(node)
        node.step = mock.AsyncMock()  # type: ignore[method-assign]  # of this one
        node.record_failed_step()

    state = decode_state(await reported(Case(before=fail), tmp_path))
    assert [each.code for each in state.notes] == [ProblemCode.AGENT_FAILED, ProblemCode.CHECK_FAILING]
    assert state.note == SEPARATOR.join(each.message for each in state.notes)


def test_every_code_is_reported_by_a_case() -> None:
    """So that each has a message that is read by both controllers."""
    codes = {code for each in CASES.values() for code in (each.refused, each.next_refused, each.excluded, each.noted)}
    assert codes == {*ProblemCode} - {ProblemCode.OTHER, ProblemCode.AGENT_FAILED}


async def test_an_absent_interface_is_reported_before_the_first_vip(tmp_path: Path) -> None:
    """The text without instances does not name it: `Ready` and `kavip doctor` know it from agents all the same."""
    simulation = settled(build.group(interface="eth9"))
    with_pods(simulation, pod("p1", "n1"), pod("p2", "n2"))
    data = simulation.objects.configmaps[GROUP].data or {}
    case, nodes = Case(files={name: text.encode() for name, text in data.items()}), list[Reconciler]()
    state = decode_state(await reported(replace(case, before=nodes.append), tmp_path))
    assert [nodes[0].is_relevant(NetworkChange(interface=name)) for name in ("eth9", "eth8")] == [True, False]
    assert (state.refused, state.config_hash, state.missing_interfaces) == ("", "", ("eth9",))
    simulation.agents = agent_states(n1=node_state(state), n2=node_state(state))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    message = "interface eth9 does not exist: create it, or name another one in the group"
    assert condition(simulation, READY) == ("True", "Ready", f"every pod is ready; nodes n1, n2: {message}")
    answers = tuple(agent_answer(state, group=GROUP, node=node) for node in ("n1", "n2"))
    assert [each.what for each in interfaces(replace(sound(), agents=answers))] == [
        f"node {node} has no interface eth9, which group {GROUP} uses" for node in ("n1", "n2")
    ]
