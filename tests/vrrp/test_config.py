"""The text of ``keepalived.conf``."""

import dataclasses
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.address import parse_address
from kavip.errors import UnsafeValue
from kavip.names import Reason
from kavip.vrrp.config import guard, render
from kavip.vrrp.grammar import Line
from kavip.vrrp.instances import Model
from tests.support import build
from tests.vrrp.samples import GOLDEN, NEW, SAMPLES, annotated, conf, model, nodes

# What a line may be: nothing else is ever in a configuration.
WORD = r"[A-Za-z0-9_.:/+=,-]+"
SHAPES = re.compile(
    rf"""
      \#\ kavip:\ written\ by\ kavip\ for\ KeepalivedGroup\ {WORD};\ do\ not\ edit
    | global_defs\ \{{ | vrrp_instance\ {WORD}\ \{{ | vrrp_track_file\ {WORD}\ \{{ | \}}
    | \ {{4}}(@{WORD}\ )?[a-z][a-z0-9_]*(\ {WORD})*          # a keyword and its words
    | \ {{4}}[a-z][a-z0-9_]*\ "{WORD}(\ {WORD})*"             # a program
    | \ {{4}}\#\ kavip:\ authentication
    | \ {{4}}[a-z][a-z0-9_]*\ \{{ | \ {{4}}\}}
    | \ {{8}}(@\^{WORD}\ )?{WORD}(\ {WORD})*                  # in a block
    """,
    re.VERBOSE,
)


@pytest.mark.parametrize("name", SAMPLES)
def test_golden(name: str) -> None:
    """The text is the golden one, byte by byte (``python -m tests.vrrp.samples`` writes it anew)."""
    assert SAMPLES[name]() == (GOLDEN / f"{name}.conf").read_text(encoding="ascii")


def test_no_golden_without_sample() -> None:
    """Every golden file has its sample."""
    assert {path.stem for path in GOLDEN.iterdir()} == SAMPLES.keys()


@pytest.mark.parametrize("name", SAMPLES)
def test_shape(name: str) -> None:
    """Every line has one of few shapes, and braces pair; the agent reads nothing else."""
    depth = 0
    for line in SAMPLES[name]().splitlines():
        assert SHAPES.fullmatch(line), line
        assert len(line) <= 512
        depth += line.endswith("{") - line.endswith("}")
        assert 0 <= depth <= 2
    assert depth == 0


def test_hash_is_of_the_text() -> None:
    """The same text has the same hash, and another text another."""
    group, peers = build.group(), nodes(2)
    first, again = (render(model(group, [annotated("a/web", "192.0.2.1")], peers)) for _ in range(2))
    other = render(model(group, [annotated("a/web", "192.0.2.2")], peers))
    assert first.hash == again.hash != other.hash
    assert re.fullmatch("[0-9a-f]{16}", first.hash)


def test_existing_instance_is_untouched_by_another() -> None:
    """A Service that is added adds its block and changes no other line."""
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
def test_guard_refuses(value: object) -> None:
    """Anything but one plain word raises, naming the value."""
    with pytest.raises(UnsafeValue, match=r"cannot be written to keepalived\.conf"):
        guard(value)


@given(st.text() | st.binary() | st.integers() | st.floats())
def test_guard_lets_only_words_through(value: object) -> None:
    """What passes the guard is a number or one plain word, unchanged."""
    try:
        passed = guard(value)
    except UnsafeValue:
        return
    assert passed is value
    assert re.fullmatch(WORD, str(passed))


def hostile() -> Model:
    """A model with every kind of value in it."""
    found = model(build.group(**NEW), [annotated("a/web", "192.0.2.1", "192.0.2.2")], nodes(2))
    lines = (Line("accept", ("x",)), Line("track_interface", block=("eth1", "weight")), Line("x", ("y",), quoted=True))
    return dataclasses.replace(found, instances=(dataclasses.replace(found.instances[0], lines=lines),))


TEXTS = st.text(min_size=1).filter(lambda text: not re.fullmatch(WORD, text) or len(text) > 256)


@given(bad=TEXTS, where=st.integers(0, 9))
def test_no_string_survives_outside_the_guard(bad: str, where: int) -> None:
    """Wherever in the model a string is that is not one plain word, there is no text at all."""
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


def test_missing_value_is_an_error() -> None:
    """A template that asks for what is not there fails instead of writing nothing."""
    with pytest.raises(UnsafeValue, match="Undefined"):
        render(dataclasses.replace(hostile(), instances=(SimpleNamespace(name="VI_1", tracks=()),)))  # type: ignore[arg-type]  # on purpose


@pytest.mark.slow
def test_oversized() -> None:
    """A text that no ConfigMap can hold comes with a refusal that says what to do."""
    services = [annotated(f"shop/service-{number}", f"198.51.100.{number}") for number in range(255)]
    fits, large = (render(model(build.group(**NEW), services, nodes(count, ipv6=False))) for count in (20, 60))
    assert fits.oversized is None
    assert large.oversized
    assert large.oversized.reason is Reason.INVALID
    assert "255 instances" in large.oversized.message
    assert "use instances.mode Shared" in large.oversized.message
