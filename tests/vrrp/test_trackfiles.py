"""The behaviour of track files in keepalived, on which the agent relies."""

from pathlib import Path

import pytest

from hack.testbed import process
from hack.testbed.fixtures import MakeSegment
from hack.testbed.segment import Host
from kavip.agent.keepalived.rundir import replace_file
from tests.vrrp import livedaemons

pytestmark = pytest.mark.netns

ALONE = "shop/web"
BASE = 200


class Case:
    """One daemon with one instance that tracks files in a folder of its own."""

    def __init__(self, host: Host) -> None:
        self.folder = host.home / "track"
        self.folder.mkdir()
        self.daemon = livedaemons.Daemon(host)

    def text(self, *weights: int) -> str:
        """A configuration with a track file for each of *weights*: t0, t1, ..."""
        files = "".join(f'track_file t{n} {{\n    file "{self.folder}/t{n}"\n}}\n' for n in range(len(weights)))
        lines = "".join(f"        t{n} weight {weight}\n" for n, weight in enumerate(weights))
        follows = f"    track_file {{\n{lines}    }}\n" if weights else ""
        return (
            f"global_defs {{\n    max_auto_priority -1\n}}\n{files}vrrp_instance {ALONE} {{\n    state BACKUP\n"
            "    interface eth0\n    virtual_router_id 7\n    version 3\n    advert_int 0.1\n"
            f"    priority {BASE}\n{follows}"
            "    virtual_ipaddress {\n        192.0.2.130/32 dev eth0\n    }\n}\n"
        )

    def put(self, number: int, content: str) -> None:
        """Replace a file, as the agent does."""
        replace_file(self.folder / f"t{number}", content.encode())

    def comes_to(self, state: str, priority: int = BASE) -> None:
        """Wait until the instance is in *state* with this effective priority."""
        process.wait_for(
            f"{state} with {priority}",
            lambda: (seen := self.daemon.look()[ALONE]).state == state and seen.priority == priority,
            timeout=livedaemons.PATIENCE,
        )

    @property
    def changes(self) -> tuple[int, int]:
        """How often it became master and stopped being master."""
        return self.daemon.look()[ALONE].changes


@pytest.fixture
def case(segment: MakeSegment) -> Case:
    """One node; no daemon runs yet."""
    return Case(segment(nodes=1).node("n1"))


def test_weight_0_is_fault(case: Case) -> None:
    """A number other than 0 is a fault at once, and from the start if read then; 0 or a missing file ends it."""
    case.put(0, "1\n")
    case.daemon.start(case.text(0))
    case.comes_to("FAULT")
    assert case.changes == (0, 0)
    case.put(0, "0\n")
    case.comes_to("MASTER")
    case.put(0, "7\n")
    case.comes_to("FAULT")
    (case.folder / "t0").unlink()
    case.comes_to("MASTER")


def test_weights_are_multiplied_and_added(case: Case) -> None:
    """The sum over all files changes the priority, which stays above 0; a master without rivals stays master."""
    case.daemon.start(case.text(-1, -100, -253))
    case.comes_to("MASTER")
    before = case.changes
    case.put(0, "37\n")
    case.comes_to("MASTER", BASE - 37)
    case.put(1, "1\n")
    case.comes_to("MASTER", BASE - 137)
    case.put(2, "1\n")
    case.comes_to("MASTER", 1)
    for number in range(3):
        (case.folder / f"t{number}").write_text("0\n")  # in place: keepalived reads it when it is closed
    case.comes_to("MASTER")
    assert case.changes == before


def test_a_reload_keeps_the_state(case: Case) -> None:
    """Files that are added, removed or reweighted with a reload move no VIP by themselves; only their numbers do."""
    case.daemon.start(case.text())
    case.comes_to("MASTER")
    before = case.changes
    case.put(1, "1\n")
    for weights, priority in (((0,), BASE), ((0, -100), BASE - 100), ((0, -50), BASE - 50), ((), BASE)):
        case.daemon.reload(case.text(*weights))
        case.comes_to("MASTER", priority)
    assert case.changes == before
    case.put(0, "1\n")
    case.daemon.reload(case.text(0))
    case.comes_to("FAULT")


def test_files_need_their_folder(case: Case, tmp_path: Path) -> None:
    """
    keepalived tracks files that are created later, but none in a folder that does not exist when it reads the text.
    """
    case.folder.rmdir()
    found = livedaemons.check(case.daemon.host, case.text(0))
    assert found == "" or "No such file or directory" in found  # the latter since 2.3
    case.daemon.start(case.text(0))
    case.comes_to("MASTER")
    case.folder.mkdir()
    case.put(0, "1\n")
    case.comes_to("MASTER")
    case.daemon.reload(case.text(0))
    case.comes_to("FAULT")


def test_a_file_must_be_defined_before_it_is_tracked(case: Case) -> None:
    """keepalived refuses to track a file that is not defined before; a definition without use is accepted."""
    definition, _, rest = case.text(0).partition("vrrp_instance")
    opening, _, block = definition.partition("track_file")
    assert "not found" in livedaemons.check(case.daemon.host, f"{opening}vrrp_instance{rest}track_file{block}")
    assert "not found" in livedaemons.check(case.daemon.host, f"{opening}vrrp_instance{rest}")
    unused = case.text().replace("vrrp_instance", f"track_file{block}vrrp_instance")
    assert livedaemons.check(case.daemon.host, unused) == ""
