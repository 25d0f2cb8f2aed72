"""The text of ``keepalived.conf``."""

import dataclasses
import hashlib
import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.address import parse_address
from kavip.errors import UnsafeValue
from kavip.memo import Memory
from kavip.names import Reason
from kavip.vrrp.config import guard, render
from kavip.vrrp.grammar import Line
from kavip.vrrp.instances import Model
from tests.support import build
from tests.support.examples import examples
from tests.vrrp.samples import GOLDEN, NEW, SAMPLES, annotated, conf, model, nodes, shared

# The forms of lines; a configuration has no others.
WORD = r"[A-Za-z0-9_.:/+=,-]+"
SHAPES = re.compile(
    rf"""
      \#\ kavip:\ written\ by\ kavip\ for\ KeepalivedGroup\ {WORD};\ do\ not\ edit
    | \#\ kavip:\ spread\ {WORD}
    | global_defs\ \{{ | vrrp_instance\ {WORD}\ \{{ | vrrp_track_file\ {WORD}\ \{{ | \}}
    | \ {{4}}(@{WORD}\ )?[a-z][a-z0-9_]*(\ {WORD})*          # a keyword and its words
    | \ {{4}}[a-z][a-z0-9_]*\ "{WORD}(\ {WORD})*"             # a program
    | \ {{4}}\#\ kavip:\ (authentication|template)
    | \ {{4}}[a-z][a-z0-9_]*\ \{{ | \ {{4}}\}}
    | \ {{8}}(@\^{WORD}\ )?{WORD}(\ {WORD})*                  # in a block
    """,
    re.VERBOSE,
)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_text_is_the_golden_one(name: str) -> None:
    """The text equals the golden file (``python -m tests.vrrp.samples`` writes it)."""
    assert SAMPLES[name]() == (GOLDEN / f"{name}.conf").read_text(encoding="ascii")


def test_every_golden_file_has_a_sample() -> None:
    """Every golden file has a sample."""
    assert {path.stem for path in GOLDEN.iterdir()} == SAMPLES.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_every_line_has_a_known_form(name: str) -> None:
    """Every line has one of few forms, and braces match; the agent reads nothing else."""
    depth = 0
    for line in SAMPLES[name]().splitlines():
        assert SHAPES.fullmatch(line), line
        assert len(line) <= 512
        depth += line.endswith("{") - line.endswith("}")
        assert 0 <= depth <= 2
    assert depth == 0


def test_the_hash_depends_on_the_text_only() -> None:
    """The same text has the same hash, and another text has another."""
    group, peers = build.group(), nodes(2)
    first, again = (render(model(group, [annotated("a/web", "192.0.2.1")], peers)) for _ in range(2))
    other = render(model(group, [annotated("a/web", "192.0.2.2")], peers))
    assert first.hash == again.hash != other.hash
    assert re.fullmatch("[0-9a-f]{16}", first.hash)


@examples(50)
@given(
    st.lists(st.sets(st.integers(130, 137)), min_size=2, max_size=6), st.sampled_from([{}, {"instances": shared(2)}])
)
def test_the_text_before_changes_nothing(turns: list[set[int]], more: dict[str, Any]) -> None:
    """The controller continues from it: text and hash are as without it. Agents hash the text that they get."""
    memory, group, peers = Memory(), build.group(**NEW, **more), nodes(3)
    for numbers in turns:
        services = [annotated(f"a/s{number}", f"192.0.2.{number}") for number in sorted(numbers)]
        wanted = model(group, services, peers)
        found = render(wanted, memory=memory)
        assert found == render(wanted)
        assert found.hash == hashlib.sha256(found.text.encode()).hexdigest()[:16]


def test_a_new_service_changes_no_other_instance() -> None:
    """A new Service adds its block and changes no other line."""
    group, peers = build.group(**NEW), nodes(3)
    services = [annotated(f"a/s{number}", f"192.0.2.{number}") for number in range(130, 135)]
    before = conf(group, services, peers)
    held = {f"a/s{number}": number - 129 for number in range(130, 135)}
    grown = conf(build.group(**NEW, router_ids=held), [annotated("a/added", "192.0.2.129"), *services], peers)
    block = grown[grown.index("vrrp_instance a/added {") : grown.index("vrrp_instance a/s130 {")]
    assert grown.replace(block, "") == before


@pytest.mark.parametrize(
    "value",
    [
        "", "a b", "a\n", "a}", "{", '"', "'", "a#b", "a!b", "$X", "${_PWD}", "@n1", "~SEQ(a,1,9)", "a\\", "\x00", "é",
        "a\u2028", "a" * 257, None, True, 1.5, ("a",), b"a", object(),
    ],
)  # fmt: skip
def test_the_guard_refuses_other_values(value: object) -> None:
    """Every value that is not one plain word raises an error that names it."""
    with pytest.raises(UnsafeValue, match=r"cannot be written to keepalived\.conf"):
        guard(value)


@given(st.text() | st.binary() | st.integers() | st.floats())
def test_the_guard_passes_plain_words_only(value: object) -> None:
    """A value that passes the guard is a number or one plain word, and unchanged."""
    try:
        passed = guard(value)
    except UnsafeValue:
        return
    assert passed is value
    assert re.fullmatch(WORD, str(passed))


def hostile() -> Model:
    """A model with every kind of value."""
    found = model(build.group(**NEW), [annotated("a/web", "192.0.2.1", "192.0.2.2")], nodes(2))
    lines = (Line("accept", ("x",)), Line("track_interface", block=("eth1", "weight")), Line("x", ("y",), quoted=True))
    return dataclasses.replace(found, instances=(dataclasses.replace(found.instances[0], lines=lines),))


TEXTS = st.text(min_size=1).filter(lambda text: not re.fullmatch(WORD, text) or len(text) > 256)


@given(bad=TEXTS, where=st.integers(0, 9))
def test_every_string_passes_the_guard(bad: str, where: int) -> None:
    """A string that is not one plain word, at any place in the model, prevents the text."""
    base = hostile()
    instance = base.instances[0]
    changes: list[Model] = [
        dataclasses.replace(base, group=bad),
        dataclasses.replace(base, globals=(Line("router_id", (bad,)),)),
        dataclasses.replace(base, globals=(Line(bad),)),
        *(
            dataclasses.replace(base, instances=(changed,))
            for changed in (
                dataclasses.replace(instance, name=bad),
                dataclasses.replace(instance, interface=bad),
                dataclasses.replace(instance, priorities=((bad, 5),)),
                dataclasses.replace(instance, sources=((bad, parse_address("192.0.2.1")),)),
                dataclasses.replace(instance, lines=(Line("track_interface", block=("eth1", bad)),)),
                dataclasses.replace(instance, anchor=instance.anchor._replace(interface=bad)),
                dataclasses.replace(instance, excluded=(instance.anchor._replace(interface=bad),)),
            )
        ),
    ]
    with pytest.raises(UnsafeValue):
        render(changes[where])


def test_a_missing_value_is_an_error() -> None:
    """A template with an unknown value fails instead of writing an empty string."""
    instance: Any = SimpleNamespace(name="VI_1", tracks=(), added=(), has_own_anchor=False, excluded=())
    with pytest.raises(UnsafeValue, match="Undefined"):
        render(dataclasses.replace(hostile(), instances=(instance,)))


@pytest.mark.slow
def test_an_oversized_text_is_refused() -> None:
    """A text that no ConfigMap can hold comes with a refusal and a remedy."""
    services = [annotated(f"shop/service-{number}", f"198.51.100.{number}") for number in range(255)]
    fits, large = (render(model(build.group(**NEW), services, nodes(count, ipv6=False))) for count in (20, 60))
    assert fits.oversized is None
    assert large.oversized
    assert large.oversized.reason is Reason.INVALID
    assert "255 instances" in large.oversized.message
    assert "use instances.mode Shared" in large.oversized.message
