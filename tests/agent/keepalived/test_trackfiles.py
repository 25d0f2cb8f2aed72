"""The track files of a node: what stands in them, and that nothing is forgotten when an agent starts again."""

from pathlib import Path

import pytest

from kavip.agent.config.model import Configuration, Instance
from kavip.agent.keepalived.dump import Data, Entry
from kavip.agent.keepalived.trackfiles import Findings, Tracks, Verdict, heeded, numbers
from kavip.vrrp.tracking import Track, local_track

WEB = local_track("shop/web")
RUNNING = Configuration(
    (
        Instance("shop/api", 8, "eth0", 180, tracks=(Track("check-api", -100), Track("check-router", 0))),
        Instance("shop/web", 7, "eth0", 240, tracks=(Track("check-router", 0), Track(WEB, -1))),
    )
)
WELL = {"check-api": Verdict(fails=False, weight=100), "check-router": Verdict(fails=False)}


def content(path: Path) -> dict[str, str]:
    """What stands in the files of a folder."""
    return {each.name: each.read_text().strip() for each in path.iterdir()}


def test_numbers_of_a_node_that_is_well() -> None:
    """Every file that an instance follows is there, with 0; so is that of a check that no instance follows."""
    found = numbers(RUNNING, Findings({**WELL, "check-new": Verdict(fails=False)}, awaited=frozenset()))
    assert found == {"check-api": 0, "check-new": 0, "check-router": 0, WEB: 0}


def test_numbers_of_a_node_that_is_not() -> None:
    """A check that fails is 1; a Local instance's number is what its priority is to be lowered by."""
    failing = {"check-api": Verdict(fails=True, weight=100), "check-router": Verdict(fails=True)}
    assert numbers(RUNNING, Findings(failing)) == {"check-api": 1, "check-router": 1, WEB: 100}
    found = numbers(RUNNING, Findings(failing, unready=frozenset({WEB})))
    assert 240 - found[WEB] <= 50
    assert found[WEB] > numbers(RUNNING, Findings(WELL, unready=frozenset({WEB})))[WEB] > 189


async def test_files_are_there_before_anybody_knows(tmp_path: Path) -> None:
    """A configuration that is to be read has its files, with 0, before the first check has answered."""
    tracks = Tracks(tmp_path / "track")
    await tracks.follow(RUNNING)
    assert content(tmp_path / "track") == {"check-api": "0", "check-router": "0", WEB: "0"}


async def test_an_agent_that_starts_again_changes_nothing(tmp_path: Path) -> None:
    """What an earlier one wrote stays until somebody has told otherwise, each file by who knows of it."""
    before = Tracks(tmp_path / "track")
    await before.follow(RUNNING)
    await before.tell_checks({**WELL, "check-router": Verdict(fails=True)})
    await before.tell_endpoints(unready=frozenset({WEB}))
    known = content(tmp_path / "track")
    assert known["check-router"] == "1" and known[WEB] != "0"

    tracks = Tracks(tmp_path / "track")
    await tracks.follow(RUNNING)
    assert content(tmp_path / "track") == known
    assert tracks.before("check-gone") is None
    failed = tracks.before("check-router")
    assert failed is not None and failed.number == 1
    await tracks.tell_checks({**WELL, "check-router": Verdict(fails=True)})
    assert tracks.before("check-router") == failed, "the same number keeps its time"
    await tracks.tell_checks(WELL)
    assert content(tmp_path / "track") == {**known, "check-router": "0"}
    await tracks.tell_endpoints(unready=frozenset(), awaited=frozenset({WEB}))
    assert content(tmp_path / "track")[WEB] == known[WEB]
    await tracks.tell_endpoints(unready=frozenset())
    assert set(content(tmp_path / "track").values()) == {"0"}


async def test_files_go_when_nothing_follows_them(tmp_path: Path) -> None:
    """Not before the daemon runs the new configuration, and a file that comes again begins anew."""
    tracks = Tracks(tmp_path / "track")
    await tracks.follow(RUNNING)
    await tracks.tell_checks({})
    await tracks.tell_endpoints(unready=frozenset({WEB}))
    await tracks.follow(Configuration(RUNNING.instances[:1]))
    assert WEB in content(tmp_path / "track")
    await tracks.settle()
    assert content(tmp_path / "track").keys() == {"check-api", "check-router"}
    await tracks.tell_endpoints(unready=frozenset())
    await tracks.follow(RUNNING)
    assert content(tmp_path / "track")[WEB] == "0"


@pytest.mark.parametrize("damage", ["", "x", "\x00"])
async def test_a_damaged_file_is_no_news(tmp_path: Path, damage: str) -> None:
    """It says nothing of what was before."""
    (tmp_path / "check-a").write_text(damage)
    assert Tracks(tmp_path).before("check-a") is None


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
def test_a_daemon_that_does_not_heed_a_file_is_known(
    *, weight: int, number: int, state: int, priority: int, wanted: bool
) -> None:
    """It stays master with a file that says FAULT; weights show in priorities."""
    track = Track("check-web", weight)
    tracking = Instance("shop/web", 7, "eth0", 200, tracks=(track,))
    configuration = Configuration((tracking, Instance("x", 8, "eth0")))
    data = Data("shop/web", 7, state, base_priority=200, effective_priority=priority)
    assert heeded(configuration, {"check-web": number}, (Entry(data), Entry(Data("x", 8, 3)))) is wanted


async def test_a_change_is_compared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the daemon can have noticed it."""
    monkeypatch.setattr("kavip.agent.keepalived.trackfiles.NOTICED", -1.0)
    tracks = Tracks(tmp_path / "track")
    await tracks.follow(Configuration((Instance("shop/web", 7, "eth0", 200, tracks=(Track("check-web", 0),)),)))
    master = (Entry(Data("shop/web", 7, 2, base_priority=200, effective_priority=200)),)
    assert (tracks.awaits, tracks.unheeded(master), tracks.awaits) == (True, False, False)
    await tracks.tell_checks({"check-web": Verdict(fails=True)})
    assert (tracks.awaits, tracks.unheeded(master), tracks.awaits) == (True, True, False)
