"""When a static group leaves multicast."""

import pytest

from kavip.agent.config.localize import empty
from kavip.agent.peers.membership import Answer, Contact
from kavip.agent.peers.modeswitch import LEAD, LONGEST, runs_multicast, switch_time
from kavip.api.agent import Standing

FILE, NOW = "0123456789abcdef", 1000.0


def contact(file: str = FILE, *, at: float = 0.0, standing: Standing = Standing.JOINING, failures: int = 0) -> Contact:
    """A node that has the file *file*."""
    return Contact(0.0, Answer(standing, file=file, switch_at=at), 0.0, failures)


@pytest.mark.parametrize(
    ("known", "others", "found"),
    [
        (0.0, {"n2": contact(), "n3": contact()}, (NOW + LEAD, "")),
        (0.0, {"n2": contact(), "n3": contact("old")}, (0.0, "n3")),
        (0.0, {"n2": contact(), "n3": Contact(0.0)}, (0.0, "n3")),
        (0.0, {"n2": contact(failures=1), "n3": contact()}, (0.0, "n2")),
        (0.0, {}, (0.0, "n2")),
        (0.0, {"n2": contact(at=NOW + 3)}, (NOW + 3, "")),
        (NOW + 5, {"n2": contact(at=NOW + 3), "n3": contact(failures=2)}, (NOW + 3, "")),
        (NOW + 2, {"n2": contact(at=NOW + 3)}, (NOW + 2, "")),
        (0.0, {"n2": contact(at=NOW + LONGEST + 1)}, (0.0, "n3")),
        (0.0, {"n2": contact("old", at=NOW + 3)}, (0.0, "n2")),
        (0.0, {"n2": contact(standing=Standing.JOINED)}, (NOW, "")),
        (0.0, {"n2": contact("old", standing=Standing.JOINED)}, (0.0, "n2")),
    ],
)
def test_all_nodes_take_the_earliest_instant(
    known: float, others: dict[str, Contact], found: tuple[float, str]
) -> None:
    """There is none before every node has the file; what was announced stays."""
    assert switch_time(known, FILE, {"n2", "n3"}, others, now=NOW) == found


def test_an_empty_configuration_is_no_multicast() -> None:
    """A node that runs nothing has nothing to leave."""
    assert not runs_multicast(None)
    assert not runs_multicast(empty("n1"))
