"""The results that keepalived follows on this node through track files: health checks and ready endpoints."""

from pathlib import Path
from typing import Final

import structlog

from kavip.agent.config.model import MountedConfig
from kavip.agent.health.checks import HealthChecks
from kavip.agent.health.endpoints import LocalEndpoints
from kavip.agent.keepalived.trackfiles import TrackFiles
from kavip.agent.report.dump import Dump
from kavip.agent.report.health import check_problems
from kavip.api.address import Address
from kavip.api.agent import NodeProblem, ProblemCode
from kavip.vrrp.targets import NodeEndpoints

_REMEDY: Final = "raise fs.inotify.max_user_instances of the node"
_IGNORED: Final = NodeProblem(
    ProblemCode.TRACK_FILES_IGNORED,
    f"keepalived ignores health checks and endpoints: {_REMEDY}, and restart keepalived",
)

log = structlog.get_logger()


class NodeHealth:
    """The health checks and endpoints of one group, and the track files that carry them."""

    def __init__(
        self, node: str, node_ip: Address | None, tracks: TrackFiles, *, ca_dir: Path, environment: NodeEndpoints
    ) -> None:
        self.tracks = tracks
        self.checks = HealthChecks(tracks, ca_dir=ca_dir, environment=environment)
        self.endpoints = LocalEndpoints(node, tracks, hosts=("127.0.0.1", str(node_ip or ""), "::1"))
        self._is_ignored = False

    @property
    def problems(self) -> tuple[NodeProblem, ...]:
        """Checks that fail or cannot run, and a keepalived that does not follow track files."""
        return (*((_IGNORED,) if self._is_ignored else ()), *check_problems(self.checks.statuses))

    async def run_once(self, mounted: MountedConfig) -> None:
        """Get the first results for *mounted*, before keepalived starts."""
        await self.checks.run_once(mounted.checks)
        await self.endpoints.run_once(mounted.locals)

    def verify(self, dump: Dump) -> None:
        """Find out from *dump* whether keepalived follows the last change of a track file."""
        was_ignored, self._is_ignored = self._is_ignored, not self.tracks.verify(dump)
        if self._is_ignored and not was_ignored:
            log.error("track files ignored by keepalived", remedy=_REMEDY)
