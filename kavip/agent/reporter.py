"""Keeps the agent's status, and logs what changes in it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import structlog

from kavip.agent.config.model import MountedConfig, NextConfig, RefusedConfig
from kavip.agent.preparation import Outcome, Rehearsal
from kavip.agent.report.state import AgentStatus
from kavip.api.agent import NodeProblem, ProblemCode

_FAILED: Final = NodeProblem(
    ProblemCode.AGENT_FAILED, "the agent failed in its last step, and tries again: see its log"
)

log = structlog.get_logger()


class StatusReporter:
    """The status of the agent on the node *node*."""

    def __init__(self, node: str) -> None:
        self.status = AgentStatus(node=node)

    def record_version(self, version: str) -> None:
        """Record keepalived's *version*."""
        self.status = replace(self.status, version=version)

    def record_outcome(
        self,
        mounted: MountedConfig | RefusedConfig,
        outcome: Outcome,
        *,
        failure: NodeProblem | None,
        notes: Iterable[NodeProblem | None],
        missing: frozenset[str] = frozenset(),
    ) -> None:
        """
        Record the *outcome* of *mounted*, and its group: others read no answer without it, and this one is complete.

        *failure*: why keepalived did not run the configuration at the last attempt; it is None again after a dump has
        shown the configuration. *notes* are further problems of the node, *missing* the interfaces that it lacks.
        """
        held = mounted.held if isinstance(mounted, MountedConfig) else None
        refused = held or (outcome.problem if isinstance(outcome, RefusedConfig) else failure)
        if refused and refused != self.status.refused:
            self.status = replace(self.status, refusals=self.status.refusals + 1)
            log.error("configuration refused", code=refused.code.value, reason=refused.message)
        own = () if isinstance(outcome, RefusedConfig) else outcome.notes
        found = tuple(each for each in (*own, *notes) if each)
        for note in found:
            if note not in self.status.notes:
                log.warning("node warning", code=note.code.value, note=note.message)
        self._record_excluded(outcome)
        if isinstance(mounted, MountedConfig):
            self.status = replace(self.status, wanted_hash=mounted.config_hash)
        group = mounted.group or self.status.group
        self.status = replace(self.status, group=group, refused=refused, notes=found, missing=missing)

    def record_reload(self, problem: NodeProblem | None) -> None:
        """Record why keepalived does not run the configuration; None: it does."""
        self.status = replace(self.status, refused=problem)

    def record_rehearsal(self, following: NextConfig | None, result: Rehearsal, *, announced: bool) -> None:
        """Record whether this node can switch to *following*; *announced*: the instant is known."""
        is_ready = following is not None and result.problem is None
        self.status = replace(
            self.status,
            prepared=following.digest if following and is_ready else "",
            next_refused=result.problem,
            next_missing=result.missing,
            switch_at=following.at if following and is_ready and announced else "",
        )

    def record_failed_step(self) -> None:
        """Record that a step has failed, until one succeeds."""
        self.status = replace(self.status, notes=(_FAILED,))

    def _record_excluded(self, outcome: Outcome) -> None:
        if isinstance(outcome, RefusedConfig) and not outcome.excluded:
            return  # the running configuration excludes the same instances as before
        for each in outcome.excluded:
            if each not in self.status.excluded:
                log.error(
                    "instance excluded",
                    instance=each.name,
                    code=each.fault.code.value,
                    reason=each.fault.message,
                    kept=each.kept,
                )
        self.status = replace(self.status, excluded=outcome.excluded)
