"""No condition, Event or line of the log holds a character that a terminal obeys, wherever its text comes from."""

import io
import sys

import pytest
import structlog
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kavip import telemetry
from kavip.api.event import Note, ObjectReference
from kavip.api.meta import Metadata
from kavip.api.text import one_line, printable
from kavip.reconcile.plan import ConditionState

HOSTILE = "shop/web\x1b[2J\x1b[1;1H\u202e\u2066\x00\x9b\u2028\r\nFAKE: line\ud800"
anything = st.text(st.characters())  # all code points, surrogates included


@given(anything)
@example(HOSTILE)
@example(" two  blanks and one at the end ")
@example("one\N{NO-BREAK SPACE}that is no blank")
def test_every_text_becomes_one_printable_line(text: str) -> None:
    """Only blanks are folded; what is escaped stays readable, and nothing is escaped twice."""
    line = one_line(text)
    assert line.isprintable()
    assert line == printable(" ".join(text.split()))
    assert one_line(line) is line


@given(anything)
@example(HOSTILE)
@example(HOSTILE * 1000)
@example("\x1b" * 8000)
def test_no_condition_and_no_event_holds_unprintable_text(text: str) -> None:
    """The guard is where each of them is made. The bounds of the API hold after it."""
    condition = ConditionState("True", "Ready", text).condition(Metadata(), "Ready")
    assert condition.message.isprintable()
    assert len(condition.message.encode()) <= 32_768
    assert Note(ObjectReference(), "Ready", text).text.isprintable()


@pytest.mark.parametrize("form", ["text", "json"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(text=anything)
@example(text=HOSTILE)
def test_no_line_of_the_log_is_forged(text: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value cannot end its line or move the cursor, in either form."""
    stream = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        telemetry.configure_logging("info", form)
    structlog.get_logger("test").warning("review failed", error=text)
    (line,) = stream.getvalue().removesuffix("\n").split("\n")
    assert line.isprintable()
