"""Which texts are written in the compact notation, and what counts against the size of a ConfigMap."""

from typing import Any

import pytest

from kavip.memo import Memory
from kavip.vrrp import compact, config
from kavip.vrrp.compact import expand, is_compact
from kavip.vrrp.config import Notations, Target, Use, render
from tests.support import build
from tests.vrrp.samples import NEW, annotated, model, nodes, shared

COMPACT = Target(notations=Notations(compact=Use.IF_LARGE))


def test_large_texts_with_many_nodes_are_compact() -> None:
    """
    A text is compact above 64 KiB with 2,000 lines for nodes, and stays so down to three quarters of both.

    A text whose VIPs make it large stays as it is.
    """
    services = [annotated(f"a/s{number:02}", f"192.0.2.{100 + number}") for number in range(40)]
    texts = {count: model(build.group(**NEW), services, nodes(count, ipv6=False)) for count in (12, 15, 20)}
    stays = Target(notations=Notations(compact=Use.UNLESS_SMALL))
    found = {
        count: [is_compact(render(each, target).content) for target in (config.PLAIN, COMPACT, stays)]
        for count, each in texts.items()
    }
    assert found == {12: [False, False, False], 15: [False, False, True], 20: [False, True, True]}
    many = [annotated(f"a/s{n:03}", *(f"198.18.{n}.{k}" for k in range(32))) for n in range(100)]
    large = render(model(build.group(**NEW, instances=shared(4)), many, nodes(2)), COMPACT)
    assert len(large.text) > config.LARGE
    assert large.content == large.text


def test_it_is_compact_where_a_configmap_cannot_hold_the_text_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts against the size of a ConfigMap are the bytes that it holds."""
    services = [annotated(f"a/s{number:02}", f"192.0.2.{100 + number}") for number in range(40)]
    found = model(build.group(**NEW), services, nodes(20, ipv6=False))
    needed = Target(notations=Notations(compact=Use.IF_NEEDED), agent_bytes=1_000)
    assert not is_compact(render(found, needed).content)
    monkeypatch.setattr(config, "MOST_BYTES", 50_000)
    full, short = render(found), render(found, needed)
    assert full.oversized is not None
    assert short.oversized is None
    assert full.hash == short.hash
    assert short.size == len(short.content) + 1_000 < 50_000 < len(short.text)


def test_a_text_that_no_agent_would_expand_is_oversized(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group reports it in the words of that limit."""
    services = [annotated(f"a/s{number:02}", f"192.0.2.{100 + number}") for number in range(40)]
    monkeypatch.setattr(config, "MOST_EXPANDED", 100_000)
    found = render(model(build.group(**NEW), services, nodes(40, ipv6=False)), COMPACT)
    assert found.oversized is not None
    assert f"{len(found.text):,} bytes in full, and an agent reads 100,000" in found.oversized.message


def test_only_the_changed_instance_is_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a memory, one more Service among 60 costs one more instance, and none of the others."""
    services = [annotated(f"a/s{number:02}", f"192.0.2.{100 + number}") for number in range(60)]
    peers, memory, calls = nodes(20, ipv6=False), Memory(), list[str]()
    real = compact._encoded

    def counted(text: str, above: Any) -> Any:
        calls.append(text)
        return real(text, above)

    monkeypatch.setattr(compact, "_encoded", counted)
    for known in (services[:59], services):
        calls.clear()
        found = render(model(build.group(**NEW), known, peers), COMPACT, memory=memory)
        assert expand(found.content) == found.text
    assert len(calls) == 1
    assert calls[0].startswith("vrrp_instance a/s59 ")
