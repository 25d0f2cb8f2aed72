"""The audit log as tests read it."""

import json
from pathlib import Path

from hack.testbed.audit import AuditLog


def line(verb: str, name: str) -> str:
    """One line as the API server writes it."""
    return json.dumps(
        {
            "verb": verb,
            "user": {"username": "kavip"},
            "stage": "ResponseComplete",
            "requestURI": "/api/v1/services",
            "objectRef": {"resource": "services", "name": name, "namespace": "a"},
            "responseStatus": {"code": 200},
        }
    )


def test_events_are_those_since_the_mark_that_match(tmp_path: Path) -> None:
    """Earlier requests and other verbs are left out."""
    log = AuditLog(tmp_path / "audit.log")
    assert log.events() == []
    log.path.write_text(line("patch", "old") + "\n")
    log.mark()
    with log.path.open("a") as file:
        file.write(line("get", "web") + "\n" + line("patch", "web") + "\n")
    assert [event.name for event in log.events(verb="patch", user="kavip")] == ["web"]
    assert len(log.events()) == 2


def test_a_line_that_is_being_written_is_not_read_yet(tmp_path: Path) -> None:
    """An incomplete line is skipped."""
    log = AuditLog(tmp_path / "audit.log")
    log.path.write_text(line("get", "web") + "\n" + line("get", "web")[:30])
    assert len(log.events()) == 1


def test_a_line_that_is_being_written_at_the_mark_counts_as_later(tmp_path: Path) -> None:
    """The mark stands at the beginning of that line, also if the line is longer than a block that is read."""
    log = AuditLog(tmp_path / "audit.log")
    whole = line("patch", "w" * 200_000)
    for part in (0, 1, 30, len(whole)):
        log.path.write_text(line("get", "old") + "\n" + whole[:part])
        log.mark()
        with log.path.open("a") as file:
            file.write(whole[part:] + "\n")
        assert [event.verb for event in log.events()] == ["patch"]
    log.path.write_text(whole[:30])
    log.mark()
    assert log._offset == 0


def test_events_are_taken_once(tmp_path: Path) -> None:
    """An incomplete line is left for the next call."""
    log = AuditLog(tmp_path / "audit.log")
    whole = line("patch", "web") + "\n"
    log.path.write_text(line("get", "old") + "\n" + whole[:40])
    assert [event.verb for event in log.take()] == ["get"]
    assert log.take() == []
    with log.path.open("a") as file:
        file.write(whole[40:])
    assert [event.verb for event in log.take()] == ["patch"]
