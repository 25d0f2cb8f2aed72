"""The CA bundle in the ConfigMap of the webhook: its order, its bounds, and what is refused."""

from datetime import UTC, datetime, timedelta

import pytest

from kavip.errors import BadInput
from kavip.pki import cabundleconfigmap, certificates
from kavip.pki.trustbundle import encode_pem
from tests.pki.secrets import issued

NOW = datetime(2026, 5, 1, tzinfo=UTC)
OLD, NEW = (certificates.new_ca(NOW + timedelta(days=days)) for days in (0, 1))
LEAF = certificates.new_leaf(NEW, ["kavip"], NOW)
PEM = encode_pem([NEW.certificate]).decode()


def test_the_order_is_independent_of_the_input() -> None:
    """The newest CA is first, and each stands once."""
    expected = encode_pem([NEW.certificate, OLD.certificate]).decode()
    assert cabundleconfigmap.encode([OLD.certificate, NEW.certificate, OLD.certificate]) == expected
    assert cabundleconfigmap.encode([NEW.certificate, OLD.certificate]) == expected
    assert cabundleconfigmap.decode(expected) == [NEW.certificate, OLD.certificate]


def test_only_trust_anchors_are_encoded() -> None:
    """A CA or a certificate that signs itself; no leaf."""
    pinned = issued(None, NOW).certificate
    text = cabundleconfigmap.encode([NEW.certificate, LEAF.certificate, pinned])
    assert cabundleconfigmap.decode(text) == [NEW.certificate, pinned]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is malformed"),
        ("rubbish", "is malformed"),
        (PEM[:-60], "is malformed"),
        (PEM + NEW.key_pem.decode(), "is malformed; want certificates as PEM, and nothing else"),
        (PEM + encode_pem([LEAF.certificate]).decode(), "certificate 2 is malformed, or not a CA"),
        (PEM + " " * cabundleconfigmap.MAX_BYTES, f"characters; want at most {cabundleconfigmap.MAX_BYTES}"),
        ("-----BEGIN " * (cabundleconfigmap.MAX_CERTIFICATES + 1), "PEM blocks; want at most 250"),
    ],
    ids=["empty", "rubbish", "cut", "key", "leaf", "long", "many"],
)
def test_anything_else_is_refused(text: str, problem: str) -> None:
    """The message says what is wrong."""
    with pytest.raises(BadInput) as refused:
        cabundleconfigmap.decode(text)
    assert problem in str(refused.value)


def test_what_does_not_fit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first certificates of the given order stay, by number and by size."""
    monkeypatch.setattr(cabundleconfigmap, "MAX_CERTIFICATES", 1)
    assert cabundleconfigmap.fitting([OLD.certificate, NEW.certificate]) == [OLD.certificate]
    monkeypatch.setattr(cabundleconfigmap, "MAX_CERTIFICATES", 2)
    monkeypatch.setattr(cabundleconfigmap, "MAX_BYTES", len(PEM) + 10)
    assert cabundleconfigmap.fitting([NEW.certificate, OLD.certificate]) == [NEW.certificate]
