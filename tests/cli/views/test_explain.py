"""``kavip explain``: every reason, Services that kavip does not manage, and the output and exit status."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.cluster import ExternalIP, Network, NetworkSpec
from kavip.api.group import Check, GroupStatus
from kavip.api.meta import Condition, LabelSelector, Metadata
from kavip.api.pool import PoolRouting
from kavip.api.service import ServiceStatus
from kavip.cli.views import explain, explainoutput
from kavip.cli.views.explain import Advice, ServiceReport, why_unmanaged
from kavip.cli.views.listing import Listing
from kavip.cli.views.simulate import NOW
from kavip.errors import BadInput
from kavip.names import Reason
from kavip.reconcile.plan import ReconcileOptions
from kavip.snapshot import Object, Snapshot
from tests.cli.manifest import manifest
from tests.ipam.deciding import PREFER, REQUIRE, SHARE, ours, with_reason
from tests.support.build import group, namespace, node, pool, service
from tests.support.manifests import ROOT

SHOP, EDGE = namespace("shop"), group("lb/edge", default=True)
AROUND = (SHOP, EDGE, node("n1", "192.0.2.11"))
SMALL = pool("edge", "192.0.2.128/31")
FULL = [ours(f"shop/old{at}", [f"192.0.2.{128 + at}"], created="2025-01-01T00:00:00Z") for at in range(2)]
TAKEN = ours("shop/mine", ["192.0.2.128"], annotations=SHARE, created="2025-01-01T00:00:00Z")
QUOTA = pool("edge", "192.0.2.128/28", max_per_namespace=1)
OFFICE = pool("office", namespace_selector=LabelSelector(match_labels={"tier": "office"}))

CLOSED = LabelSelector(match_labels={"tier": "front"})
OPENSHIFT = Network(
    metadata=Metadata(name="cluster"), spec=NetworkSpec(external_ip=ExternalIP(auto_assign_cidrs=["198.51.100.0/24"]))
)


def report_of(subject: Any, *others: Object, options: ReconcileOptions | None = None) -> ServiceReport:
    """The report about *subject* beside *others*, all from files."""
    objects = [*AROUND, *others, subject]
    return explain.explain_service(
        explain.listing_of(objects),
        subject.key,
        now=NOW,
        options=options or ReconcileOptions(),
        refused=explain.refusals_of(objects, subject.key, ipam="auto"),
    )


@pytest.mark.parametrize(
    ("reason", "subject", "others"),
    [
        ("Assigned", service("shop/web"), (SMALL,)),
        ("NoPool", service("shop/web"), (pool("edge", auto_assign=False),)),
        ("PoolNotFound", service("shop/web", pool="egde"), (SMALL,)),
        ("PoolSelectorMismatch", service("shop/web", pool="office"), (OFFICE,)),
        ("PoolExhausted", service("shop/web"), (SMALL, *FULL)),
        ("AddressNotInPool", service("shop/web", wants="10.0.0.1"), (SMALL,)),
        ("AddressInUse", service("shop/web", wants="192.0.2.128"), (SMALL, TAKEN)),
        ("AddressNotAllowed", service("shop/web", wants="192.0.2.129"), (pool(exclude=["192.0.2.129"]),)),
        ("SharingRefused", service("shop/web", wants="192.0.2.128", annotations=SHARE), (SMALL, TAKEN)),
        ("FamilyNotAvailable", service("shop/web", wants="2001:db8::1"), (SMALL,)),
        ("QuotaExceeded", service("shop/web", pool="edge"), (QUOTA, TAKEN)),
        ("InvalidRequest", service("shop/web", wants="192.0.2.300"), (SMALL,)),
        ("LeftToPlatform", service("shop/web"), (SMALL, OPENSHIFT)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_reason_is_explained_from_files(reason: str, subject: Any, others: tuple[Any, ...]) -> None:
    """The decision is that of a cluster, in text and JSON; the exit status is 0 only where an address is assigned."""
    found = report_of(manifest(subject), *others)
    assert found.decided is not None
    assert (found.decided.reason, found.status) == (reason, int(reason != "Assigned"))
    assert reason in explainoutput.text(found)
    assert explainoutput.data(found)["decided"]["reason"] == reason
    assert json.loads(json.dumps(explainoutput.data(found))) == explainoutput.data(found)


def test_the_interface_of_each_address_is_named() -> None:
    """With the gateway of its replies; addresses on the interface of the group have no line."""
    routing = PoolRouting(gateway="198.51.100.1", table=120)
    dmz = pool("dmz", "198.51.100.128/25", interface="vlan20", routing=routing)
    subject = service("shop/web", pool="dmz", external_ips=["192.0.2.130"])
    found = report_of(manifest(subject), SMALL, dmz)
    joined = " ".join(explainoutput.text(found).split())
    assert "198.51.100.128 on vlan20 (pool dmz); its gateway is 198.51.100.1 (routing table 120)" in joined
    assert explainoutput.data(found)["interfaces"] == [
        {
            "address": "198.51.100.128",
            "pool": "dmz",
            "interface": "vlan20",
            "gateway": "198.51.100.1",
            "table": 120,
        }
    ]


@pytest.mark.parametrize("status", ["True", "False"])
def test_a_note_says_that_an_interface_may_not_be_in_use_yet(status: Literal["True", "False"]) -> None:
    """While the group is not programmed, its nodes may run what the pool named before."""
    absent = "interface vlan30 exists on no node"
    programmed = [Condition(names.ConditionType.PROGRAMMED, status, Reason.PENDING, absent)]
    edge = msgspec.structs.replace(group("lb/edge"), status=GroupStatus(conditions=programmed))
    dmz = pool("dmz", "198.51.100.128/25", interface="vlan30")
    for name, is_noted in (("dmz", status == "False"), ("edge", False)):
        subject = service("shop/web", group="lb/edge", pool=name)
        assert any(absent in each for each in report_of(subject, SMALL, dmz, edge).notes) is is_noted


def test_external_ips_are_the_services_addresses() -> None:
    """kavip assigns none of them, but the headline says whether they are advertised."""
    subject = service("shop/web", group="lb/edge", type="ClusterIP", external_ips=["203.0.113.9"])
    has = "203.0.113.9 (spec.externalIPs)"
    assert explainoutput.text(report_of(manifest(subject), SMALL)).startswith(f"Service shop/web would have {has}\n")
    status = ServiceStatus(conditions=[Condition(names.ConditionType.ADVERTISED, "False", Reason.NO_MASTER)])
    found = report_of(msgspec.structs.replace(subject, status=status), SMALL)
    assert explainoutput.text(found).startswith(f"Service shop/web has {has}, and is not advertised: NoMaster\n")
    assert found.status == 0


@st.composite
def cases_of_management(draw: st.DrawFn) -> tuple[Any, ...]:
    """A Service, and a cluster in which kavip may or may not manage it."""
    subject = service(
        "shop/web",
        group=draw(st.sampled_from(["", "lb/edge", "lb/gone"])),
        type=draw(st.sampled_from(["LoadBalancer", "ClusterIP"])),
        holds=draw(st.sampled_from([(), ("10.0.0.1",)])),
        load_balancer_class=draw(st.sampled_from([None, names.LOAD_BALANCER_CLASS, "example.com/other"])),
        external_ips=draw(st.sampled_from([None, ["10.0.0.7"]])),
    )
    default = group("lb/edge", default=True, allowed_namespaces=draw(st.sampled_from([None, CLOSED])))
    return subject, SHOP, *draw(st.sampled_from([(), (default,)]))


@given(crowd=cases_of_management())
def test_an_unmanaged_service_has_a_reason(crowd: tuple[Any, ...]) -> None:
    """There is a reason exactly where no group serves the Service, and the headline shows it."""
    subject = crowd[0]
    snapshot = Snapshot.from_objects(crowd)
    why = why_unmanaged(snapshot, subject)
    assert bool(why) == (snapshot.group_of(subject) is None)
    found = explain.report(snapshot, "shop/web", NOW)
    assert explainoutput.text(found).startswith(f"Service shop/web is not managed by kavip: {why}") == bool(why)


def test_a_service_without_a_group_gets_a_command() -> None:
    """The command names a group that the namespace may use."""
    plain: list[Object] = [SHOP, group("lb/edge"), group("lb/other"), service("shop/web")]
    found = explain.report(Snapshot.from_objects(plain), "shop/web", NOW)
    command = (
        "kubectl annotate service -n shop web --overwrite keepalived-operator.redhat-cop.io/keepalivedgroup=lb/edge"
    )
    assert found.advice == (Advice(command, is_command=True), Advice("or one of the other groups: lb/other"))
    assert f"\nWhat to do:\n  {command}\n" in explainoutput.text(found), "a command is not wrapped"
    assert found.status == 1


def test_names_in_commands_mean_nothing_to_a_shell() -> None:
    """A name in a file is not checked by an API server; a command is copied into a shell."""
    found = explain.report(Snapshot.from_objects([SHOP, group("lb/edge"), service("shop/$(id)")]), "shop/$(id)", NOW)
    assert found.advice[0].text.startswith("kubectl annotate service -n shop '$(id)' --overwrite ")


def test_without_a_usable_group_the_advice_is_to_create_one() -> None:
    """A group that does not allow the namespace is no choice."""
    closed = group("lb/closed", allowed_namespaces=CLOSED)
    found = explain.report(Snapshot.from_objects([SHOP, closed, service("shop/web")]), "shop/web", NOW)
    (advice,) = found.advice
    assert advice.text.startswith(
        "create a KeepalivedGroup that serves namespace shop, labelled kavip.io/default-group=true"
    )


def test_an_address_that_is_requested_twice_is_removed_twice() -> None:
    """Another pool does not help while spec.loadBalancerIP requests an address of the first."""
    spare = pool("spare", "198.51.100.0/30", auto_assign=False)
    found = report_of(service("shop/web", load_balancer_ip="192.0.2.128"), SMALL, spare, TAKEN)
    assert [each.text for each in found.advice[:3]] == [
        "kubectl annotate service -n shop web --overwrite kavip.io/pool=edge",
        "other pools that would serve it: spare",
        "also remove spec.loadBalancerIP, which requests an address as well",
    ]


HELD: tuple[list[str], ...] = ([], ["10.0.0.1"], ["192.0.2.128"], ["10.0.0.1", "2001:db8::7"], ["192.0.2.130"])
WISHES: tuple[dict[str, str], ...] = (
    {},
    {names.REASSIGN_ANNOTATION: "true"},
    {names.ADDRESSES_ANNOTATION: "10.0.0.1"},
    {names.POOL_ANNOTATION: "gone"},
)


@pytest.mark.parametrize("make", [ours, service], ids=["kavip's", "another controller's"])
@pytest.mark.parametrize("families", [{}, REQUIRE, PREFER], ids=["one", "require", "prefer"])
def test_reassign_is_advised_where_the_condition_names_it(make: Any, families: dict[str, Any]) -> None:
    """The advice follows from the reason, and agrees with the message for every address, pool and request."""
    closed, dual = pool("edge", "192.0.2.128/31", auto_assign=False), pool("dual", "198.51.100.0/30", "2001:db8::/64")
    advised = 0
    pools: tuple[tuple[Object, ...], ...] = ((SMALL,), (SMALL, dual), (SMALL, *FULL), (closed,), (OFFICE,))
    for held, wish, others in product(HELD, WISHES, pools):
        holder = {"holds": held} if make is service else {}
        addresses = [] if make is service else [held]
        notes = {names.GROUP_ANNOTATION: "lb/edge", **wish}
        found = report_of(make("shop/web", *addresses, annotations=notes, **holder, **families), *others)
        assert found.decided is not None
        commands = [each.text for each in found.advice if each.is_command and names.REASSIGN_ANNOTATION in each.text]
        assert bool(commands) == (names.REASSIGN_ANNOTATION in found.decided.message), found.decided
        advised += len(commands)
    assert advised > 20


def test_the_older_service_gets_the_last_address() -> None:
    """An address that an older Service will get is not promised to a younger one, in any order of the files."""
    old, young = (service(f"shop/{name}", created=f"2026-01-0{at}T00:00:00Z") for at, name in enumerate("ba", start=1))
    one = pool("edge", "192.0.2.128/32")
    decided = [report_of(young, one, old).decided, report_of(old, one, young).decided]
    assert [each.reason for each in decided if each] == ["PoolExhausted", "Assigned"]


def test_a_condition_that_is_not_written_yet_is_no_success() -> None:
    """A Service of a cluster waits until kavip has written its condition; a manifest would get its address."""
    waiting = service("shop/web")
    found = report_of(waiting, SMALL)
    assert (found.status, found.condition, found.is_served) == (1, None, False)
    assert "kavip has not written this yet" in found.advice[-1].text
    assert report_of(manifest(waiting), SMALL).status == 0


@pytest.mark.parametrize(
    ("in_status", "rest"),
    [
        ((), ""),
        ((("Programmed", "False", "NoNodes"),), ", and is not advertised: NoNodes"),
        ((("Programmed", "False", "Pending"), ("Advertised", "True", "Master")), ""),
        (
            (("Programmed", "True", "Programmed"), ("Advertised", "False", "NoMaster")),
            ", and is not advertised: NoMaster",
        ),
    ],
    ids=["new", "no node", "on its way", "no master"],
)
def test_the_headline_says_where_an_address_is_not_advertised(
    in_status: tuple[tuple[str, str, str], ...], rest: str
) -> None:
    """One node that advertises it is enough, even while others are pending."""
    holder = ours("shop/web", ["192.0.2.128"])
    assigned = report_of(holder, SMALL).decided
    assert assigned is not None
    more = [Condition(type=f"kavip.io/{kind}", status=status, reason=reason) for kind, status, reason in in_status]
    status = msgspec.structs.replace(holder.status, conditions=[assigned, *more])
    found = report_of(msgspec.structs.replace(holder, status=status), SMALL)
    assert explainoutput.text(found).splitlines()[0] == f"Service shop/web has 192.0.2.128 (Assigned){rest}"
    expected = {kind.lower(): {"status": status, "reason": reason, "message": ""} for kind, status, reason in in_status}
    assert {"programmed": None, "advertised": None, **expected}.items() <= explainoutput.data(found).items()


def test_the_other_conditions_are_shown() -> None:
    """An assigned address may not be advertised by any node."""
    in_status = [
        ("Programmed", "True", "Programmed", "on all"),
        ("Advertised", "False", "NoMaster", "no node holds it"),
    ]
    conditions = [Condition(type=f"kavip.io/{kind}", status=a, reason=b, message=c) for kind, a, b, c in in_status]
    mine = service("shop/web", holds=["192.0.2.128"])
    mine = msgspec.structs.replace(mine, status=msgspec.structs.replace(mine.status, conditions=conditions))
    text = explainoutput.text(report_of(mine, SMALL))
    assert "  programmed   True Programmed: on all\n  advertised   False NoMaster: no node holds it\n" in text


def test_refusals_of_admission_are_shown() -> None:
    """A valid request with a bad annotation gets no address, because the Service is refused."""
    bad = {names.VERBATIM_ANNOTATION: "{", names.GROUP_ANNOTATION: "lb/edge"}
    found = report_of(manifest(service("shop/web", annotations=bad)), SMALL)
    assert found.decided is not None
    assert (found.decided.status, found.status) == ("True", 1)
    assert found.refused[0].startswith(f"metadata.annotations[{names.VERBATIM_ANNOTATION}]: ")


def test_without_pools_the_decision_is_unknown() -> None:
    """The exit status is 2, and a note names the kinds that the files lack."""
    found = explain.explain_service(explain.listing_of([service("shop/web")]), "shop/web", now=NOW)
    assert (found.status, found.decided, found.explanation) == (2, None, None)
    assert found.notes[0].startswith("the files hold no KeepalivedGroup, no VIPPool, no Namespace, no Node: ")


@pytest.mark.parametrize(("key", "meant"), [("shop/wbe", "shop/web"), ("default/web", "shop/web"), ("a/b", "")])
def test_a_similar_service_is_suggested(key: str, meant: str) -> None:
    """A name may be mistyped, or the namespace may be wrong."""
    around = Listing((service("shop/web"), SMALL))
    with pytest.raises(BadInput) as raised:
        explain.explain_service(around, key, now=NOW)
    assert str(raised.value) == f"SERVICE: '{key}': no such Service" + (f"; did you mean {meant}?" if meant else "")


def test_a_service_that_was_left_to_an_invisible_platform() -> None:
    """With --ipam never, or without the right to read the platform, kavip's own condition counts."""
    left = with_reason(service("shop/web"), Reason.LEFT_TO_PLATFORM, "Unknown")
    found = report_of(left, SMALL)
    assert (found.decided, found.status, found.explanation) == (found.condition, 1, None)
    assert explainoutput.text(found).startswith("Service shop/web is left to another controller: LeftToPlatform")
    assert report_of(left, SMALL, OPENSHIFT).decided != found.condition, "a visible platform decides"


def test_the_text_of_many_pools_is_bounded() -> None:
    """The pool that gives the address is always shown; the rest is counted, and JSON has all."""
    pools = [pool(f"p{at:03}", f"10.0.{at}.0/32", service_selector=CLOSED) for at in range(100)]
    found = report_of(manifest(service("shop/web")), *pools, pool("z", "192.0.2.128/32"))
    text = explainoutput.text(found)
    assert len(text.splitlines()) < 100
    assert "  101. z" in text
    assert "  and 80 more, which -o json shows: does not serve it (80)" in text
    assert len(explainoutput.data(found)["pools"]) == 101


def test_external_ips_alone_request_no_address() -> None:
    """kavip serves them and writes no condition about addresses."""
    found = report_of(service("shop/web", type="ClusterIP", group="lb/edge", external_ips=["192.0.2.128"]), SMALL)
    assert (found.status, found.decided) == (0, None)
    assert "AddressAssigned" not in explainoutput.text(found)


def test_the_number_of_addresses_is_shown() -> None:
    """With the number that is missing; the exit status is that of a Service that waits."""
    found = report_of(service("shop/web", annotations={names.COUNT_ANNOTATION: "3"}), SMALL)
    text = explainoutput.text(found)
    assert found.status == 1
    assert "requests     3 addresses per family, IPv4; any pool" in text
    assert "2 of 3 IPv4 addresses: pool edge has no more" in text
    assert (explainoutput.data(found)["asks"] or {})["count"] == 3


def test_what_limits_a_preference_is_shown() -> None:
    """A wish without a node, and a check that is too light to move a VIP from a preferred node."""
    light = Check(name="ready", url="kubelet", on_failure="LowerPriority", weight=20)
    subject = service("shop/web", group="lb/edge", annotations={names.PREFERRED_NODES_ANNOTATION: "zone=a"})
    objects = (SHOP, group("lb/edge", checks=[light]), node("n1", "192.0.2.11"), pool("edge"), subject)
    found = explain.explain_service(Listing(objects), "shop/web", now=NOW)
    assert "kavip.io/preferred-nodes matches no node of KeepalivedGroup lb/edge" in found.notes
    assert found.notes[1].endswith("ready (20) has a weight under 100")


def test_control_characters_of_a_status_are_escaped() -> None:
    """The text shows them escaped; JSON has them as they are."""
    subject = ours("shop/web", ["192.0.2.128"])
    written = [msgspec.structs.replace(each, message="a\x1b[2J\r\nb\u202e") for each in subject.status.conditions or ()]
    status = msgspec.structs.replace(subject.status, conditions=written)
    found = report_of(msgspec.structs.replace(subject, status=status), SMALL)
    assert r"a\x1b[2J  b\u202e" in explainoutput.text(found)
    assert all(line.isprintable() for line in explainoutput.text(found).split("\n"))


def test_a_service_that_is_being_deleted() -> None:
    """Nothing is decided for it, and a note says that it keeps its addresses."""
    subject = ours("shop/web", ["192.0.2.128"])
    leaving = msgspec.structs.replace(subject.metadata, deletion_timestamp="2026-01-02T00:00:00Z")
    found = report_of(msgspec.structs.replace(subject, metadata=leaving), SMALL)
    assert (found.explanation, found.notes) == (None, ("it is being deleted; it holds its addresses until it is gone",))


@pytest.mark.slow
def test_the_process_prints_its_report_and_returns_the_status(tmp_path: Path) -> None:
    """Text and JSON are the same for any order of the files; the exit status is 0 or 1."""
    manifests: list[dict[str, Any]] = [
        {"kind": "VIPPool", "apiVersion": "kavip.io/v1alpha1", "metadata": {"name": "edge"}},
        {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "web", "namespace": "shop"}},
        {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "api", "namespace": "shop"}},
    ]
    for each, spec in zip(manifests, ({"addresses": ["192.0.2.128/32"]}, *[{"type": "LoadBalancer"}] * 2), strict=True):
        each["spec"] = spec
    for at, each in enumerate(manifests):
        (tmp_path / f"{at}.yaml").write_text(json.dumps(each))

    def run(*args: str, order: tuple[int, ...] = (0, 1, 2)) -> tuple[int, str]:
        files = [word for at in order for word in ("-f", f"{tmp_path}/{at}.yaml")]
        command = [sys.executable, "-m", "kavip", "explain", *args, *files]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)
        assert done.stderr == ""
        return done.returncode, done.stdout

    status, text = run("web", "-n", "shop")
    assert status == 1
    assert text.startswith("Service shop/web has no address: PoolExhausted\n")
    assert "NO  IPv4        0 of 1 free, 1 assigned" in text
    assert run("shop/web", order=(2, 1, 0)) == (status, text)
    status, text = run("shop/api", "-o", "json")
    assert (status, json.loads(text)["addresses"][0]["address"]) == (0, "192.0.2.128")
