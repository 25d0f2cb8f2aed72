"""
What this node should run now: the mounted configuration, the next one after the announced instant, or nothing.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kavip.agent import mount
from kavip.agent.config.model import LocalizedConfig, MountedConfig, RefusedConfig
from kavip.agent.config.switchover import SwitchTimer, config_to_run, is_renewed, timestamp
from kavip.agent.mount import PasswordFiles
from kavip.agent.newpassword import JoiningPod


class DesiredConfig:
    """
    Reads the mount of one group; *now* is the wall clock.

    *new_password_since*: when the mounted password first differed from the running one; "" while they are equal.
    """

    def __init__(self, config_dir: Path, passwords: PasswordFiles, *, now: Callable[[], float]) -> None:
        self.joining = JoiningPod(time.monotonic, now)
        self.new_password_since = ""
        self._config_dir, self._passwords, self._now = config_dir, passwords, now
        self._timer = SwitchTimer(now, time.monotonic)

    async def read(self, installed: LocalizedConfig | None) -> tuple[MountedConfig | RefusedConfig, float | None]:
        """The configuration to run, and the seconds until the next one takes its place; None: no instant announced."""
        mounted = await asyncio.to_thread(mount.read, self._config_dir, self._passwords)
        if isinstance(mounted, RefusedConfig):
            return mounted, None
        left = self._timer.update(mounted.next)
        if is_renewed(mounted, installed) or self.joining.is_held_back:
            self._record_new_password()
        else:
            self.new_password_since = ""
        return config_to_run(mounted, left, installed), left

    def hold_back(self, mounted: MountedConfig) -> MountedConfig:
        """*mounted*; marked as held, so that nothing runs, while this pod must not use its password."""
        if not self.joining.update(mounted):
            return mounted
        self._record_new_password()
        return replace(mounted, held=self.joining.problem)

    def _record_new_password(self) -> None:
        self.new_password_since = self.new_password_since or timestamp(self._now())
