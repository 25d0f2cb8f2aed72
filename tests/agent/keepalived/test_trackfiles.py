"""The track files of a node: their numbers, and what a restarted agent keeps."""

from pathlib import Path

import pytest

from kavip.agent.config.model import ConfiguredInstance, ParsedConfig
from kavip.agent.keepalived.trackfiles import CheckResult, TrackFiles, TrackInputs, is_followed, numbers
from kavip.agent.report.dump import Data, Entry
from kavip.vrrp.tracking import Track, local_track

WEB = local_track("shop/web")
RUNNING = ParsedConfig(
    (
        ConfiguredInstance("shop/api", 8, "eth0", 180, tracks=(Track("check-api", -100), Track("check-router", 0))),
        ConfiguredInstance("shop/web", 7, "eth0", 240, tracks=(Track("check-router", 0), Track(WEB, -1))),
    )
)
WELL = {"check-api": CheckResult(fails=False, weight=100), "check-router": CheckResult(fails=False)}


def content(path: Path) -> dict[str, str]:
    """The content of the files in a folder."""
    return {each.name: each.read_text().strip() for each in path.iterdir()}


def test_numbers_of_a_healthy_node() -> None:
    """Every file that an instance follows has 0, also that of a check that no instance follows."""
    found = numbers(RUNNING, TrackInputs({**WELL, "check-new": CheckResult(fails=False)}, awaited=frozenset()))
    assert found == {"check-api": 0, "check-new": 0, "check-router": 0, WEB: 0}


def test_numbers_of_an_unhealthy_node() -> None:
    """A failed check is 1; the number of a Local instance is what lowers its priority."""
    failing = {"check-api": CheckResult(fails=True, weight=100), "check-router": CheckResult(fails=True)}
    assert numbers(RUNNING, TrackInputs(failing)) == {"check-api": 1, "check-router": 1, WEB: 100}
    found = numbers(RUNNING, TrackInputs(failing, unready=frozenset({WEB})))
    assert 240 - found[WEB] <= 50
    assert found[WEB] > numbers(RUNNING, TrackInputs(WELL, unready=frozenset({WEB})))[WEB] > 189


async def test_files_exist_before_the_first_results(tmp_path: Path) -> None:
    """With 0, before keepalived reads the configuration."""
    tracks = TrackFiles(tmp_path / "track")
    await tracks.prepare(RUNNING)
    assert content(tmp_path / "track") == {"check-api": "0", "check-router": "0", WEB: "0"}


async def test_a_restarted_agent_changes_nothing(tmp_path: Path) -> None:
    """A file keeps its number until the result that it follows from is known again."""
    before = TrackFiles(tmp_path / "track")
    await before.prepare(RUNNING)
    await before.update_checks({**WELL, "check-router": CheckResult(fails=True)})
    await before.update_endpoints(unready=frozenset({WEB}))
    known = content(tmp_path / "track")
    assert known["check-router"] == "1" and known[WEB] != "0"

    tracks = TrackFiles(tmp_path / "track")
    await tracks.prepare(RUNNING)
    assert content(tmp_path / "track") == known
    assert tracks.read("check-gone") is None
    failed = tracks.read("check-router")
    assert failed is not None and failed.number == 1
    await tracks.update_checks({**WELL, "check-router": CheckResult(fails=True)})
    assert tracks.read("check-router") == failed, "the same number keeps its time"
    await tracks.update_checks(WELL)
    assert content(tmp_path / "track") == {**known, "check-router": "0"}
    await tracks.update_endpoints(unready=frozenset(), awaited=frozenset({WEB}))
    assert content(tmp_path / "track")[WEB] == known[WEB]
    await tracks.update_endpoints(unready=frozenset())
    assert set(content(tmp_path / "track").values()) == {"0"}


async def test_unused_files_are_removed(tmp_path: Path) -> None:
    """After keepalived runs the new configuration; a file that is needed again starts with 0."""
    tracks = TrackFiles(tmp_path / "track")
    await tracks.prepare(RUNNING)
    await tracks.update_checks({})
    await tracks.update_endpoints(unready=frozenset({WEB}))
    await tracks.prepare(ParsedConfig(RUNNING.instances[:1]))
    assert WEB in content(tmp_path / "track")
    await tracks.remove_unused()
    assert content(tmp_path / "track").keys() == {"check-api", "check-router"}
    await tracks.update_endpoints(unready=frozenset())
    await tracks.prepare(RUNNING)
    assert content(tmp_path / "track")[WEB] == "0"


@pytest.mark.parametrize("damage", ["", "x", "\x00"])
async def test_a_damaged_file_has_no_value(tmp_path: Path, damage: str) -> None:
    """It does not describe the time before."""
    (tmp_path / "check-a").write_text(damage)
    assert TrackFiles(tmp_path).read("check-a") is None


@pytest.mark.parametrize(
    ("weight", "number", "state", "priority", "wanted"),
    [
        (0, 1, 2, 200, False),
        (0, 1, 3, 200, True),
        (0, 0, 3, 200, True),
        (0, 0, 1, 200, True),
        (-50, 1, 2, 200, False),
        (-50, 1, 2, 150, True),
        (-50, 0, 1, 150, False),
        (-50, 0, 1, 200, True),
    ],
)
def test_a_keepalived_that_ignores_track_files_is_detected(
    *, weight: int, number: int, state: int, priority: int, wanted: bool
) -> None:
    """It stays master although a file means FAULT, or its priority does not show a weight."""
    track = Track("check-web", weight)
    tracking = ConfiguredInstance("shop/web", 7, "eth0", 200, tracks=(track,))
    configuration = ParsedConfig((tracking, ConfiguredInstance("x", 8, "eth0")))
    data = Data("shop/web", 7, state, base_priority=200, effective_priority=priority)
    assert is_followed(configuration, {"check-web": number}, (Entry(data), Entry(Data("x", 8, 3)))) is wanted


async def test_a_change_is_verified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as keepalived must have noticed it."""
    monkeypatch.setattr("kavip.agent.keepalived.trackfiles.NOTICED", -1.0)
    tracks = TrackFiles(tmp_path / "track")
    await tracks.prepare(
        ParsedConfig((ConfiguredInstance("shop/web", 7, "eth0", 200, tracks=(Track("check-web", 0),)),))
    )
    master = (Entry(Data("shop/web", 7, 2, base_priority=200, effective_priority=200)),)
    assert (tracks.needs_verification, tracks.verify(master), tracks.needs_verification) == (True, True, False)
    await tracks.update_checks({"check-web": CheckResult(fails=True)})
    assert (tracks.needs_verification, tracks.verify(master), tracks.needs_verification) == (True, False, False)
