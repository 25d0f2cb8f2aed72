"""The response for a verdict: code, one line, and limits of count and length."""

from kavip.admission.response import MAX_TEXT, ReviewedObject, response
from kavip.admission.text import MAX_MESSAGE
from kavip.admission.verdict import AdmissionWarning, Verdict, describe, message_of
from kavip.api.refusal import LONGEST_FIELD, Refusal
from kavip.errors import BadInput
from kavip.names import Reason
from tests.admission.evaluation import EDGE, create, reasons
from tests.support.build import pool, service


def test_several_findings_are_422_unless_all_are_403() -> None:
    """An invalid field together with an exceeded quota is a 422."""
    found = create(service("shop/web", group="lb/gone", pool="edge"), EDGE, pool("edge", max_per_namespace=0))
    assert reasons(found) == [Reason.GROUP_NOT_FOUND, Reason.QUOTA_EXCEEDED]
    answer = response("u1", found, ReviewedObject("Service", "web"))
    assert answer.status is not None
    assert answer.status.code == 422
    assert answer.status.message.startswith("Service web: 2 problems: ")


def test_a_warning_is_cut_at_256_bytes() -> None:
    """The API server cuts longer warnings; no character is split."""
    answer = response("u1", Verdict(warnings=("ä" * 200, "short", "short")), ReviewedObject("Service", "web"))
    assert answer.warnings is not None
    assert [len(text.encode()) for text in answer.warnings] == [255, 5]
    assert answer.warnings[0].endswith("ä...")


def test_warnings_are_bounded() -> None:
    """Of forty warnings 31 are shown; the last line has the number of the others."""
    answer = response("u1", Verdict(warnings=tuple(map(str, range(40)))), ReviewedObject("Service", "web"))
    assert answer.warnings == [*map(str, range(31)), "and 9 more warnings"]
    answer = response("u1", Verdict(warnings=tuple(map(str, range(32)))), ReviewedObject("Service", "web"))
    assert answer.warnings == [*map(str, range(32))]


def test_causes_are_bounded() -> None:
    """Of forty causes 31 are shown; the last one has the field of the next and the number of the others."""
    submitted = service(
        "shop/web", group="lb/edge", type="ClusterIP", external_ips=[f"203.0.113.{i}" for i in range(1, 41)]
    )
    found = create(submitted, EDGE, pool())
    assert len(found.refusals) == 41
    answer = response("u1", found, ReviewedObject("Service", "web"))
    assert answer.status is not None
    assert answer.status.details is not None
    causes = answer.status.details.causes or []
    assert len(causes) == 32
    assert (causes[-1].field, causes[-1].message) == ("spec.externalIPs[31]", "and 10 more problems; fix these first")
    assert answer.status.message.startswith("Service web: 41 problems: ")
    assert answer.status.message.endswith("; spec.externalIPs[31]: and 10 more problems; fix these first")


def test_the_message_names_the_object() -> None:
    """kubectl prints only this message if several objects of a file are refused; Helm always does."""
    found = create(service("shop/web", group="lb/gone"), EDGE)
    for subject, named in (
        (ReviewedObject("Service", "web", namespace="shop"), "Service shop/web: "),
        (ReviewedObject("VIPPool", "edge"), "VIPPool edge: "),
        (ReviewedObject("Service", "", namespace="shop"), "Service: "),
    ):
        answer = response("u1", found, subject)
        assert answer.status is not None
        assert answer.status.message.startswith(f"{named}metadata.annotations[")


def test_the_text_of_all_causes_is_bounded() -> None:
    """An answer stays in memory until its reader has read it: an object must not make it as large as itself."""
    long = Refusal(Reason.INVALID, "m" * MAX_MESSAGE, f"spec.nodeSelector[{'k' * 1_000_000}]")
    answer = response("u1", Verdict(refusals=(long,) * 30), ReviewedObject("KeepalivedGroup", "edge"))
    assert answer.status is not None and answer.status.details is not None
    *causes, last = answer.status.details.causes or []
    assert 1 < len(causes) < 30 and last.message == f"and {30 - len(causes)} more problems; fix these first"
    assert sum(len(each.message) + len(each.field) for each in causes) <= MAX_TEXT
    one = response("u1", Verdict(refusals=(long,)), ReviewedObject("KeepalivedGroup", "edge"))
    assert one.status is not None and len(one.status.message) < MAX_MESSAGE + 2 * LONGEST_FIELD


def test_a_message_does_not_repeat_its_field() -> None:
    """Also one that is too long, or not printable."""
    for key in ("k" * 1000, "\u202ek"):
        refusal = Refusal.of(Reason.INVALID, BadInput(f"spec.verbatimConfig[{key}]", "x", "want a keyword"))
        assert message_of(refusal).startswith("'x': want") or message_of(refusal).startswith("x: want")


def test_fields_and_names_are_printable() -> None:
    """Users choose the keys of maps, which are part of a field path, and the name of the object."""
    refusal = Refusal(Reason.INVALID, "wrong", "spec.nodeSelector[\x1b]0;x\x07\u202e]")
    answer = response("u1", Verdict(refusals=(refusal,)), ReviewedObject("Keepalived\nGroup", "e\x1b[2J", "g\x00"))
    assert answer.status is not None and answer.status.details is not None
    details = answer.status.details
    texts = [answer.status.message, details.name, details.group, details.kind]
    texts += [text for each in details.causes or () for text in (each.field, each.message)]
    assert [text for text in texts if not text.isprintable()] == []
    assert describe(AdmissionWarning("odd", "spec.x[\x1b]")).isprintable()
