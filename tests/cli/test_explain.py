"""``kavip explain -f``: every reason from files alone, who is not managed, and what the process says and returns."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.cluster import ExternalIP, Network, NetworkSpec
from kavip.api.meta import Condition, LabelSelector, Metadata
from kavip.api.service import ServiceStatus
from kavip.cli.views import explain, explanation
from kavip.cli.views.explain import Report
from kavip.cli.views.simulate import NOW
from kavip.cli.views.unmanaged import why_unmanaged
from kavip.errors import BadInput
from kavip.names import Reason
from kavip.reconcile.plan import ReconcileOptions
from kavip.snapshot import Object, Snapshot
from tests.ipam.deciding import SHARE, ours, told
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


def new(subject: Any) -> Any:
    """*subject* as a manifest that no API server has seen."""
    bare = msgspec.structs.replace(subject.metadata, uid="", resource_version="", creation_timestamp=None)
    return msgspec.structs.replace(subject, metadata=bare)


def asked(subject: Any, *others: Object, options: ReconcileOptions | None = None) -> Report:
    """The report of *subject* beside *others*, all from files."""
    objects = [*AROUND, *others, subject]
    found = explain.from_files(objects, subject.key, ipam="auto")
    return explain.explain_service(found, subject.key, now=NOW, options=options or ReconcileOptions())


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
def test_each_reason_is_told_from_files(reason: str, subject: Any, others: tuple[Any, ...]) -> None:
    """Decided as in a cluster, in text and JSON, and the exit status is 1 for all but the one that gets its address."""
    found = asked(new(subject), *others)
    assert found.decided is not None
    assert (found.decided.reason, found.status) == (reason, int(reason != "Assigned"))
    assert reason in explanation.text(found)
    assert explanation.data(found)["decided"]["reason"] == reason
    assert json.loads(json.dumps(explanation.data(found))) == explanation.data(found)


def test_a_service_that_brings_its_addresses_has_them() -> None:
    """Of ``externalIPs`` nothing is assigned; whether they are advertised is said all the same."""
    subject = service("shop/web", group="lb/edge", type="ClusterIP", external_ips=["203.0.113.9"])
    has = "203.0.113.9 (spec.externalIPs)"
    assert explanation.text(asked(new(subject), SMALL)).startswith(f"Service shop/web would have {has}\n")
    status = ServiceStatus(conditions=[Condition(names.Condition.ADVERTISED, "False", Reason.NO_MASTER)])
    found = asked(msgspec.structs.replace(subject, status=status), SMALL)
    assert explanation.text(found).startswith(f"Service shop/web has {has}, and is not advertised: NoMaster\n")
    assert found.status == 0


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Any, ...]:
    """A Service and a cluster in which kavip may or may not manage it."""
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


@given(crowd=crowds())
def test_whoever_is_not_managed_is_told_why(crowd: tuple[Any, ...]) -> None:
    """There is a reason exactly where no group serves the Service, and it opens the text."""
    subject = crowd[0]
    snapshot = Snapshot.from_objects(crowd)
    why = why_unmanaged(snapshot, subject)
    assert bool(why) == (snapshot.group_of(subject) is None)
    found = explain.report(snapshot, "shop/web", NOW)
    assert explanation.text(found).startswith(f"Service shop/web is not managed by kavip: {why}") == bool(why)


def test_a_group_is_offered_to_who_has_none() -> None:
    """The command that gives the Service the group that its namespace may use."""
    plain: list[Object] = [SHOP, group("lb/edge"), group("lb/other"), service("shop/web")]
    found = explain.report(Snapshot.from_objects(plain), "shop/web", NOW)
    assert found.steps == (
        "kubectl annotate service -n shop web --overwrite keepalived-operator.redhat-cop.io/keepalivedgroup=lb/edge",
        "or one of the other groups: lb/other",
    )
    assert found.status == 1


def test_without_a_group_one_is_to_be_made() -> None:
    """Not one that is closed to the namespace."""
    closed = group("lb/closed", allowed_namespaces=CLOSED)
    found = explain.report(Snapshot.from_objects([SHOP, closed, service("shop/web")]), "shop/web", NOW)
    (step,) = found.steps
    assert step.startswith("create a KeepalivedGroup that serves namespace shop, labelled kavip.io/default-group=true")


def test_an_address_asked_for_in_two_places_is_to_be_given_up_in_both() -> None:
    """Naming another pool does not help while spec.loadBalancerIP asks for an address of the first."""
    spare = pool("spare", "198.51.100.0/30", auto_assign=False)
    found = asked(service("shop/web", load_balancer_ip="192.0.2.128"), SMALL, spare, TAKEN)
    assert found.steps[:2] == (
        "kubectl annotate service -n shop web --overwrite kavip.io/pool=edge",
        "other pools that would serve it: spare",
    )
    assert found.steps[2] == "and remove spec.loadBalancerIP, which asks for an address as well"


def test_the_older_one_gets_the_last_address() -> None:
    """What an older Service that waits will get is not promised to a younger one, in whatever order they stand."""
    old, young = (service(f"shop/{name}", created=f"2026-01-0{at}T00:00:00Z") for at, name in enumerate("ba", start=1))
    one = pool("edge", "192.0.2.128/32")
    decided = [asked(young, one, old).decided, asked(old, one, young).decided]
    assert [each.reason for each in decided if each] == ["PoolExhausted", "Assigned"]


def test_what_kavip_has_not_written_yet_is_no_success() -> None:
    """A Service of a cluster waits until its condition stands; a manifest would get its address."""
    waiting = service("shop/web")
    found = asked(waiting, SMALL)
    assert (found.status, found.told, found.is_served) == (1, None, False)
    assert "kavip has not written that" in found.steps[-1]
    assert asked(new(waiting), SMALL).status == 0


@pytest.mark.parametrize(
    ("said", "rest"),
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
def test_an_address_alone_makes_nobody_answer(said: tuple[tuple[str, str, str], ...], rest: str) -> None:
    """The first line says so; one node that advertises is enough, whatever the others still wait for."""
    holder = ours("shop/web", ["192.0.2.128"])
    assigned = asked(holder, SMALL).decided
    assert assigned is not None
    more = [Condition(type=f"kavip.io/{kind}", status=status, reason=reason) for kind, status, reason in said]
    status = msgspec.structs.replace(holder.status, conditions=[assigned, *more])
    found = asked(msgspec.structs.replace(holder, status=status), SMALL)
    assert explanation.text(found).splitlines()[0] == f"Service shop/web has 192.0.2.128 (Assigned){rest}"
    told = {kind.lower(): {"status": status, "reason": reason, "message": ""} for kind, status, reason in said}
    assert {"programmed": None, "advertised": None, **told}.items() <= explanation.data(found).items()


def test_who_holds_the_address_is_told_besides() -> None:
    """Or that nobody does: an address that is given is not yet one that answers."""
    said = [("Programmed", "True", "Programmed", "on all"), ("Advertised", "False", "NoMaster", "no node holds it")]
    conditions = [Condition(type=f"kavip.io/{kind}", status=a, reason=b, message=c) for kind, a, b, c in said]
    mine = service("shop/web", holds=["192.0.2.128"])
    mine = msgspec.structs.replace(mine, status=msgspec.structs.replace(mine.status, conditions=conditions))
    text = explanation.text(asked(mine, SMALL))
    assert "  programmed   True Programmed: on all\n  advertised   False NoMaster: no node holds it\n" in text


def test_what_admission_would_refuse_is_told_besides() -> None:
    """A good request with a bad annotation gets no address, because it does not come in."""
    bad = {names.VERBATIM_ANNOTATION: "{", names.GROUP_ANNOTATION: "lb/edge"}
    found = asked(new(service("shop/web", annotations=bad)), SMALL)
    assert found.decided is not None
    assert (found.decided.status, found.status) == ("True", 1)
    assert found.refused[0].startswith(f"metadata.annotations[{names.VERBATIM_ANNOTATION}]: ")


def test_without_pools_nothing_is_said_of_them() -> None:
    """Exit status 2, and a note that says what the files lack."""
    around = explain.from_files([service("shop/web")], "shop/web", ipam="auto")
    found = explain.explain_service(around, "shop/web", now=NOW)
    assert (found.status, found.decided, found.explanation) == (2, None, None)
    assert found.notes[0].startswith("the files hold no KeepalivedGroup, no VIPPool, no Namespace, no Node: ")


@pytest.mark.parametrize(("key", "meant"), [("shop/wbe", "shop/web"), ("default/web", "shop/web"), ("a/b", "")])
def test_the_service_that_was_meant_is_named(key: str, meant: str) -> None:
    """A slip of the finger, or the wrong namespace."""
    around = explain.Around((service("shop/web"), SMALL))
    with pytest.raises(BadInput) as raised:
        explain.explain_service(around, key, now=NOW)
    assert str(raised.value) == f"SERVICE: '{key}': no such Service" + (f"; did you mean {meant}?" if meant else "")


def test_what_was_left_to_somebody_unseen_is_believed() -> None:
    """With --ipam never, or without the right to read the platform, kavip's own word counts."""
    left = told(service("shop/web"), Reason.LEFT_TO_PLATFORM, "Unknown")
    found = asked(left, SMALL)
    assert (found.decided, found.status, found.explanation) == (found.told, 1, None)
    assert explanation.text(found).startswith("Service shop/web is left to somebody else: LeftToPlatform")
    assert asked(left, SMALL, OPENSHIFT).decided != found.told, "seen: decided as the controller does"


def test_many_pools_are_counted_and_the_one_that_matters_is_shown() -> None:
    """At three in the morning nobody reads a thousand lines; JSON has them all."""
    pools = [pool(f"p{at:03}", f"10.0.{at}.0/32", service_selector=CLOSED) for at in range(100)]
    found = asked(new(service("shop/web")), *pools, pool("z", "192.0.2.128/32"))
    text = explanation.text(found)
    assert len(text.splitlines()) < 100
    assert "  101. z" in text
    assert "  and 80 more, which -o json shows: does not serve it (80)" in text
    assert len(explanation.data(found)["pools"]) == 101


def test_external_ips_alone_ask_for_no_address() -> None:
    """kavip serves them and has nothing to say about addresses."""
    found = asked(service("shop/web", type="ClusterIP", group="lb/edge", external_ips=["192.0.2.128"]), SMALL)
    assert (found.status, found.decided) == (0, None)
    assert "AddressAssigned" not in explanation.text(found)


def test_what_others_wrote_into_a_status_steers_no_terminal() -> None:
    """Escapes in a condition are spelled out in the text; JSON has them as they are."""
    subject = ours("shop/web", ["192.0.2.128"])
    written = [msgspec.structs.replace(each, message="a\x1b[2J\r\nb\u202e") for each in subject.status.conditions or ()]
    status = msgspec.structs.replace(subject.status, conditions=written)
    found = asked(msgspec.structs.replace(subject, status=status), SMALL)
    assert r"a\x1b[2J  b\u202e" in explanation.text(found)
    assert all(line.isprintable() for line in explanation.text(found).split("\n"))


def test_a_deleted_service_holds_until_it_is_gone() -> None:
    """Nothing is decided for it any more, and a note says so."""
    subject = ours("shop/web", ["192.0.2.128"])
    leaving = msgspec.structs.replace(subject.metadata, deletion_timestamp="2026-01-02T00:00:00Z")
    found = asked(msgspec.structs.replace(subject, metadata=leaving), SMALL)
    assert (found.explanation, found.notes) == (None, ("it is being deleted; it holds its addresses until it is gone",))


@pytest.mark.slow
def test_the_process_prints_and_returns_what_it_found(tmp_path: Path) -> None:
    """Text and JSON on standard output, the same bytes whatever the order of the files; exit status 0 and 1."""
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
