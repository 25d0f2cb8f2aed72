"""Secrets in text: what is found, what stays, and that hostile text takes no longer than other text."""

import pytest

from kavip.cli.views.bundle.redaction import REMOVED, redacted
from tests.support.secretforms import IN_TEXT, forms


@pytest.mark.parametrize("text", IN_TEXT)
def test_secrets_are_removed(text: str) -> None:
    """No part of the secret is left, and the text says that something is removed."""
    found = redacted(f"before\n{text}\nafter")
    assert [form for form in forms() if form in found.encode()] == []
    assert REMOVED in found
    assert found.startswith("before")


@pytest.mark.parametrize(
    "text",
    (
        "Multiple nodes (n1, n2) are MASTER: split brain",
        "Secret lb/vrrp has no key password",
        "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "pod 2f1d6a7e-5f0b-4a52-9a75-1d6a7e5f0b4a",
        "/apis/redhatcop.redhat.io/v1alpha1/namespaces/lb/keepalivedgroups/edge/status",
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        "registry.example/team/kavip:1.0.0@sha256:" + "ab" * 32,
        "2001:db8::10, 192.0.2.10",
    ),
)
def test_other_text_stays(text: str) -> None:
    """Names, hashes, paths and messages of kavip are not secrets."""
    assert redacted(text) == text


@pytest.mark.parametrize(
    "text",
    (
        "-----BEGIN A-----" * 20_000,
        "-----END A-----\n" * 20_000,
        "://" * 100_000,
        "http://" * 50_000,
        "token" * 60_000,
        "token= " * 50_000,
        "a-" * 150_000,
        "bearer " * 50_000,
        "basic" + " " * 300_000,
        'password:"' * 30_000,
        'password:\\\\"' * 30_000,
        "token=[" * 40_000,
        "--" * 150_000,
        "--token " * 40_000,
        "cookie:" * 40_000,
        "eyJaaaaa." * 30_000,
    ),
    ids=lambda text: text[:8],
)
@pytest.mark.timeout(300)
def test_hostile_text_is_read_in_linear_time(text: str) -> None:
    """No text of a log keeps the command busy."""
    assert len(redacted(text)) <= 2 * len(text)
