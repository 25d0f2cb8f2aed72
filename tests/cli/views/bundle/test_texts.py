"""Configurations in a bundle can be read, and are without secrets, in whichever notation the ConfigMap has them."""

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


def test_what_cannot_be_unpacked_is_left_out() -> None:
    """Its cause is there instead."""
    found = configurations(PublishedConfig(data={names.CONFIG_KEY: f"{MARKER}czNjcjN0"}))
    assert found == {names.CONFIG_KEY: b"# its base64 holds no gzip\n"}
