"""The group that an agent reports: the leader and the agents of a static group ignore answers without it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from kavip.agent.config.model import RefusedConfig
from kavip.agent.reconciler import Reconciler
from kavip.agent.reporter import StatusReporter
from kavip.api.agent import NodeProblem, ProblemCode, decode_state
from tests.agent.test_reported_problems import CASES, TEXT, Case, reported

OTHER_VERSION: Final = b'{"configHash": ["new"], "group": "lb/edge"}'
GONE: Final = (ProblemCode.MOUNT_UNREADABLE, "it is gone")
NAMELESS: Final = ("mount gone", "mount is no text", "agent.json damaged")


@pytest.mark.parametrize("name", CASES)
async def test_a_problem_is_that_of_its_group(name: str, tmp_path: Path) -> None:
    """Also if the agent has never read a configuration that it can use: a controller ignores other groups' answers."""
    found = decode_state(await reported(CASES[name], tmp_path)).group
    assert found == ("" if name in NAMELESS else "lb/edge")


async def test_an_unfinished_answer_names_no_group(tmp_path: Path) -> None:
    """The leader would take an instance that is not tested yet for one that the node can run."""
    nodes, seen = list[Reconciler](), list[str]()

    def check(_: str) -> None:
        seen.append(nodes[0].status.group)

    state = decode_state(await reported(Case(before=nodes.append, check=check), tmp_path))
    assert (set(seen), state.group) == ({""}, "lb/edge")


def test_a_mount_that_cannot_be_read_keeps_the_group() -> None:
    """It is that of the mount before."""
    reporter = StatusReporter("n1")
    for mounted in (RefusedConfig(ProblemCode.PASSWORD_MISMATCH, "x", group="lb/edge"), RefusedConfig(*GONE)):
        reporter.record_outcome(mounted, mounted, failure=None, notes=())
    assert (reporter.status.group, reporter.status.refused) == ("lb/edge", NodeProblem(*GONE))


@pytest.mark.parametrize(
    ("files", "refused"),
    [
        ({"keepalived.conf": TEXT.encode(), "agent.json": OTHER_VERSION}, ProblemCode.MOUNT_INVALID),
        ({"keepalived.conf": b"\xff", "agent.json": OTHER_VERSION}, ProblemCode.MOUNT_INVALID),
        ({"agent.json": OTHER_VERSION}, ProblemCode.MOUNT_UNREADABLE),
    ],
    ids=["another version", "no text", "a key is missing"],
)
async def test_a_mount_that_cannot_be_used_names_its_group(
    files: Mapping[str, bytes], refused: ProblemCode, tmp_path: Path
) -> None:
    """If only that can be read."""
    state = decode_state(await reported(Case(files=files), tmp_path))
    assert (state.group, state.refused_code) == ("lb/edge", refused)
