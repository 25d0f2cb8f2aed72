"""``agent.json``: what encoding it costs."""

import msgspec
import pytest

from kavip.api.agentconfig import AgentConfig, DetectionConfig, encode_config


def test_the_annotations_of_a_type_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan of a group encodes its configuration; only the first one asks msgspec for the fields."""
    config = AgentConfig(config_hash="1f", conflict_detection=DetectionConfig(probe=("192.0.2.1",)))
    before = encode_config(config)
    monkeypatch.delattr(msgspec.structs, "fields")
    assert encode_config(config) == before
