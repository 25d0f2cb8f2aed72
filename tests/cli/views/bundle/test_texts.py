"""Configurations in a bundle can be read, and are without secrets, in whichever notation the ConfigMap has them."""

import time

import pytest

from kavip import names
from kavip.api.installation import PublishedConfig
from kavip.cli.views.bundle.redaction import REMOVED
from kavip.cli.views.bundle.texts import configurations
from kavip.vrrp.packed import MARKER, pack

TEXT = "vrrp_script check {\n    script /bin/check --token s3cr3t\n}\nvrrp_instance a {\n    auth_pass s3cr3t\n}\n"


def test_a_packed_configuration_is_that_of_its_text() -> None:
    """The base64 would hide its secrets from the redaction."""
    plain = configurations(PublishedConfig(data={names.CONFIG_KEY: TEXT}))
    assert configurations(PublishedConfig(data={names.CONFIG_KEY: pack(TEXT)})) == plain
    assert b"s3cr3t" not in plain[names.CONFIG_KEY]
    assert f"script {REMOVED}".encode() in plain[names.CONFIG_KEY]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("  notify_master /bin/tell s3cr3t", f"  notify_master {REMOVED}"),
        ("vrrp_script check {", "vrrp_script check {"),
        ("track_script check {  ", "track_script check {  "),
        ("\tmisc script s3cr3t", "\tmisc script s3cr3t"),
        ("a.script s3cr3t", "a.script s3cr3t"),
    ],
)
def test_what_keepalived_runs_is_removed(line: str, kept: str) -> None:
    """The word that begins the line tells; the beginning of a block stays."""
    found = configurations(PublishedConfig(data={names.CONFIG_KEY: f"{line}\n"}))
    assert found == {names.CONFIG_KEY: f"{kept}\n".encode()}


def test_the_time_grows_with_the_length_of_a_word_alone() -> None:
    """And not with its square: users write parts of a configuration."""
    started = time.process_time()
    configurations(PublishedConfig(data={names.CONFIG_KEY: "script" * 20_000}))
    assert time.process_time() - started < 2  # a pattern that looks for both parts of the word takes 10


def test_what_cannot_be_unpacked_is_left_out() -> None:
    """Its cause is there instead."""
    found = configurations(PublishedConfig(data={names.CONFIG_KEY: f"{MARKER}czNjcjN0"}))
    assert found == {names.CONFIG_KEY: b"# its base64 holds no gzip\n"}
