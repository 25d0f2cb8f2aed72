"""
Keeps one node's keepalived on the configuration in the mount.

1. A change of the mount wakes the loop. (:mod:`kavip.agent.watch`)
2. What should run? (:mod:`kavip.agent.desired`)
3. Localise it, test it, exclude what keepalived refuses. (:mod:`kavip.agent.preparation`) Meanwhile ask the LAN for new
   VIPs, and leave out those that another machine has. (:mod:`kavip.agent.conflicts`)
4. Install the file. (:mod:`kavip.agent.keepalived.reload`)
5. Signal keepalived, and wait for the dump that shows the new configuration. (:mod:`kavip.agent.keepalived.monitor`)

What it promises:

* keepalived never reads a configuration that was not localised, validated, and accepted by ``keepalived
  --config-test``. A refused instance is excluded, and its neighbours run. A fault outside the instances refuses the
  whole configuration; then the last good one runs on. ``/state`` reports why.
* A configuration counts as running only when a dump shows it.
* After a configuration that keepalived does not survive, it finds the last good one when it starts again. The other one
  is tried again after a growing back-off.
* Addresses that a dead keepalived left on the node are removed at once.
* A VIP that is new to the group is not announced before the LAN was silent about it.

Everything that blocks runs in threads. Only one task calls :meth:`Reconciler.step`.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

import structlog

from kavip.agent.config.facts import KUBE_PROXY_INTERFACE, NodeFacts, missing_interfaces
from kavip.agent.config.localize import addresses_of, interface_on_node, silenced, written_addresses
from kavip.agent.config.model import LocalizedConfig, MountedConfig, NextConfig, RefusedConfig
from kavip.agent.config.returnroutes import read_routes
from kavip.agent.config.switchover import NEAR, running_password, timestamp
from kavip.agent.config.withhold import Unprobed, unprobed
from kavip.agent.conflicts.detection import AddressConflicts
from kavip.agent.desired import DesiredConfig
from kavip.agent.handover import hand_over
from kavip.agent.health.nodehealth import NodeHealth
from kavip.agent.keepalived import process
from kavip.agent.keepalived.configtest import ConfigTest, version_problem
from kavip.agent.keepalived.monitor import Monitor
from kavip.agent.keepalived.process import Daemon
from kavip.agent.keepalived.reload import RECHECK, RETRY, ConfigReloader
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.keepalived.trackfiles import TrackFiles
from kavip.agent.mount import PasswordFiles
from kavip.agent.network import NodeNetwork, arp_problem, filter_problems
from kavip.agent.newpassword import PAUSE
from kavip.agent.peers.follower import PeerFollower
from kavip.agent.preparation import Outcome, Preparation, Rehearsal
from kavip.agent.report.dump import Dump
from kavip.agent.report.state import AgentStatus, StateChanges
from kavip.agent.reporter import StatusReporter
from kavip.agent.returnrouting import ReturnRouting
from kavip.agent.rtnetlink import NetworkChange
from kavip.api.address import Address
from kavip.api.agent import NodeProblem, ProblemCode
from kavip.vrrp.targets import NodeEndpoints

CA_DIR: Final = Path("/etc/kavip/ca")
NO_ENVIRONMENT: Final = NodeEndpoints()
log = structlog.get_logger()


class Reconciler:
    """One group on one node."""

    def __init__(
        self,
        *,
        node: str,
        node_ip: Address | None,
        config_dir: Path,
        passwords: PasswordFiles,
        run_directory: RunDirectory,
        config_test: ConfigTest,
        ca_dir: Path = CA_DIR,
        environment: NodeEndpoints = NO_ENVIRONMENT,
        peers: PeerFollower | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        tracks = TrackFiles(run_directory.tracks)
        self.feeds = NodeHealth(node, node_ip, tracks, ca_dir=ca_dir, environment=environment)
        self._now, self._config_test, self._files = now, config_test, run_directory
        self._monitor = Monitor(run_directory)
        self._network = NodeNetwork(node, node_ip, run_directory)
        self._reloader = ConfigReloader(node, run_directory, self._monitor, network=self._network, tracks=tracks)
        self._desired = DesiredConfig(config_dir, passwords, now=now)
        self._preparation = Preparation(config_test.check, self._reloader)
        self.conflicts, self._conflicts_version = AddressConflicts(self._network), 0
        self._reporter = StatusReporter(node)
        self.return_routing = ReturnRouting()
        self.peers = peers or PeerFollower(node, run_directory.path)
        self._seen: tuple[Daemon | None, MountedConfig | RefusedConfig, int] | None = None
        self._changes = 0  # of the node's network
        self._due = 0.0
        self._is_recorded_as_joining: bool | None = None

    @property
    def status(self) -> AgentStatus:
        """What the agent has done so far."""
        status = self._reporter.status
        return replace(
            status,
            now=timestamp(self._now()) if status.prepared or status.next_refused else "",
            new_password_since=self._desired.new_password_since,
            config_hash=self._reloader.config_hash,
            reloads=self._reloader.reloads,
            failed_reloads=self._reloader.failed_reloads,
            reload_seconds=self._reloader.reload_seconds,
            removed_addresses=self._network.removed,
            checks=self.feeds.checks.statuses,
            notes=(*status.notes, *self.feeds.problems, *self.return_routing.problems, *self.peers.problems),
            routed_pools=self.return_routing.pools,
            locals=self.feeds.endpoints.states,
            hardware=self._network.hardware.public,
            conflicts=self.conflicts.reports,
            asked_addresses=self.conflicts.asked,
            defences=self.conflicts.defences,
            standings=self.peers.standings(self._reloader.good if self._reloader.config_hash else None),
        )

    @property
    def daemon(self) -> Daemon | None:
        """The daemon of the last step."""
        return self._seen[0] if self._seen else None

    @property
    def state_changes(self) -> StateChanges:
        """When each instance of the last dump entered its state."""
        return self._monitor.changes

    async def start(self) -> None:
        """Read what an earlier agent of this pod left, and ask keepalived for its version."""
        await self._read_version()
        await self._reloader.load()
        is_unproven = await asyncio.to_thread(self._files.is_joining)
        self._desired.joining.start(self._reloader.good, is_unproven=is_unproven)
        await self._record_joining()
        await self.peers.start(self._reloader.installed if await self._monitor.daemon() else None)

    async def prepare(self) -> None:
        """
        Install a configuration to start keepalived with: the mounted one, else the last good one, else an empty one.

        Kubernetes may run an init container again beside the others, so nothing changes while keepalived runs.
        """
        await self.start()
        if await self._monitor.daemon():
            return
        try:
            mounted, _ = await self._desired.read(self._reloader.installed)
            if isinstance(mounted, MountedConfig):
                await self.feeds.run_once(mounted)
                mounted = self.peers.configure(mounted, None)
            await self._apply(None, mounted, is_first=True)
        except Exception:  # the edge: the pod must start in any case
            log.exception("first configuration failed")
        await self._reloader.ensure_installed()

    async def step(self) -> float:
        """Do what has to be done now, if anything; returns the seconds until the next step, at most."""
        daemon = await self._monitor.daemon()
        mounted, left = await self._desired.read(self._reloader.installed)
        if left is not None and 0 < left <= NEAR:
            await asyncio.sleep(left)
            mounted, left = await self._desired.read(self._reloader.installed)
        if self.peers.seconds_left <= NEAR:
            await asyncio.sleep(self.peers.seconds_left)
        if isinstance(mounted, MountedConfig):
            self.feeds.endpoints.configure(mounted.locals)
            mounted = self.peers.configure(mounted, self._reloader.installed if daemon else None)
        await self._examine_dump()
        if isinstance(mounted, MountedConfig):
            mounted = self._desired.hold_back(mounted)
        await self._record_joining()
        seen = daemon, mounted, self._changes
        soon = min(max(left - NEAR / 2, 0.0) if left else inf, max(self.peers.seconds_left - NEAR / 2, 0.0))
        pause = self._due - time.monotonic()
        if seen != self._seen or pause <= 0 or self._conflicts_version != self.conflicts.version:
            pause = await self._reconcile(daemon, mounted, left=left)
            self._seen, self._due = seen, time.monotonic() + pause
        return min(pause, soon, PAUSE if self._is_joining else inf)

    async def hand_over(self) -> None:
        """Hand this node's VIPs over (:func:`kavip.agent.handover.hand_over`); no step may run meanwhile or later."""
        check = self._config_test.check
        await hand_over(self._reloader.installed, check=check, files=self._files, monitor=self._monitor)
        await self.peers.record_end()
        if self.peers.must_say_goodbye and await self._fall_silent():
            await self.peers.say_goodbye()

    async def _fall_silent(self) -> bool:
        """Make keepalived send nothing any more, and hear nothing; return whether it does so."""
        daemon, installed = await self._monitor.daemon(), self._reloader.installed
        if daemon is None or installed is None:
            return True
        silent = silenced(installed)
        await asyncio.to_thread(self._files.install, silent)
        return await self._monitor.send_reload_and_confirm(daemon, silent.configuration)

    async def keepalived_runs(self) -> bool:
        """Whether keepalived runs."""
        return await self._monitor.daemon() is not None

    def record_failed_step(self) -> None:
        """Report that a step has failed, until one succeeds: the next one does everything again."""
        self._reporter.record_failed_step()
        self._due = 0.0

    def network_changed(self) -> None:
        """Make the next step examine the node, even if the mount has not changed."""
        self._changes += 1
        self._preparation.retest()
        self.conflicts.retry()
        self.return_routing.wake()

    def observe_network(self, change: NetworkChange) -> None:
        """Follow *change*, be it relevant or not."""
        self._network.observe(change)

    def is_relevant(self, change: NetworkChange) -> bool:
        """Whether *change* may affect this node's configuration; VIPs and pods' interfaces change all the time."""
        mounted = self._seen[1] if self._seen else None
        texts = [
            each.text
            for each in (mounted, self._reloader.installed)
            if isinstance(each, MountedConfig | LocalizedConfig)
        ]
        if change.address:
            return not any(change.address in written_addresses(text) for text in texts)
        unused = mounted.interfaces if isinstance(mounted, MountedConfig) else frozenset[str]()
        if change.interface == KUBE_PROXY_INTERFACE or change.interface in unused:
            return True
        ends = (f" {change.interface}\n", f" {change.interface} ")
        return any(end in text for text in texts for end in ends)

    async def dump(self) -> Dump | None:
        """keepalived's instances, fresh; None if it does not answer."""
        return await self._monitor.dump(self._reloader.configuration)

    @property
    def _is_joining(self) -> bool:
        """Whether keepalived runs a configuration whose password the others may not accept."""
        return self._desired.joining.is_listening and bool(self._reloader.config_hash)

    async def _record_joining(self) -> None:
        """Tell a later agent of this pod whether the others accept the password, before keepalived runs with it."""
        is_unproven = self._desired.joining.is_unproven
        if is_unproven == self._is_recorded_as_joining:
            return
        self._is_recorded_as_joining = is_unproven
        try:
            await asyncio.to_thread(self._files.record_joining, is_unproven)
        except OSError as error:  # a later agent trusts the password too early, or listens without need
            log.error("joining not recorded", reason=error.strerror)

    async def _read_version(self) -> None:
        """Ask keepalived for its version; on a busy node it may not answer in time."""
        self._monitor.program = await asyncio.to_thread(self._config_test.program)
        self._reporter.record_version(self._monitor.program.version)

    async def _examine_dump(self) -> None:
        """Find out whether keepalived follows its track files, and whether it accepts the others' adverts."""
        joining, tracks = self._desired.joining, self.feeds.tracks
        if self._is_joining and not running_password(self._reloader.installed):
            joining.stop_listening()
        dump = await self.dump() if tracks.needs_verification or self._is_joining else None
        if dump is None:
            return
        if self._is_joining and self._reloader.installed:
            joining.observe(self._reloader.installed, dump)
        if tracks.needs_verification:
            self.feeds.verify(dump)

    async def _reconcile(
        self, daemon: Daemon | None, mounted: MountedConfig | RefusedConfig, *, left: float | None
    ) -> float:
        """Install, reload and rehearse; *left* are the seconds until the switch. Return those until the next step."""
        if isinstance(mounted, MountedConfig):
            await self.feeds.checks.configure(mounted.checks)
        pause = min(await self._apply(daemon, mounted), self._reloader.grace_left)
        await self._reloader.ensure_installed()
        if daemon:
            result = await self._reloader.reload(daemon)
            pause = min(pause, result.pause)
            if result.is_news:
                self._reporter.record_reload(result.problem)
        following = mounted.next if isinstance(mounted, MountedConfig) else None
        is_ready = await self._rehearse(following, is_announced=left is not None)
        return pause if is_ready else min(pause, RETRY)

    async def _apply(
        self, daemon: Daemon | None, mounted: MountedConfig | RefusedConfig, *, is_first: bool = False
    ) -> float:
        """
        Install the wanted configuration unless it is refused; without *daemon* remove the addresses that one left.

        *is_first*: keepalived has not been started yet. Returns the seconds until the next step.
        """
        if daemon is None:
            self._reloader.forget_daemon()
            await asyncio.to_thread(process.remove_stale_pid_files, self._files.path, config=self._files.config)
        facts = await self._facts(mounted)
        outcome = await self._prepare(mounted, facts, is_first=is_first)
        if daemon is None:
            wanted = addresses_of(mounted, facts) if isinstance(mounted, MountedConfig) else frozenset()
            await self._network.remove_leftovers(facts, wanted=wanted)
        if isinstance(outcome, LocalizedConfig) and not self._reloader.is_installed(outcome):
            outcome = await self._install(outcome)
        if isinstance(mounted, MountedConfig):
            self.conflicts.watch(self._reloader.configuration, mounted.detection)
        self._reloader.update_interfaces(facts.interfaces)
        if not self._monitor.program.version:
            await self._read_version()
        notes = [
            await asyncio.to_thread(arp_problem, facts.interfaces),
            version_problem(self._monitor.program.version),
            self.conflicts.problem,
            *(await self._route_returns(mounted, facts) if isinstance(mounted, MountedConfig) else ()),
        ]
        failure = self._reloader.failures.problem(outcome.text) if isinstance(outcome, LocalizedConfig) else None
        missing = missing_interfaces(outcome.excluded, facts)
        if isinstance(mounted, MountedConfig):
            missing |= mounted.interfaces - facts.interfaces
        self._reporter.record_outcome(mounted, outcome, failure=failure, notes=notes, missing=missing)
        return RETRY if isinstance(outcome, RefusedConfig) or outcome.notes else RECHECK

    async def _prepare(self, mounted: MountedConfig | RefusedConfig, facts: NodeFacts, *, is_first: bool) -> Outcome:
        """
        The configuration that this node runs for *mounted*, without new VIPs that another machine has.

        The LAN is asked while the configuration is tested. At a switch nothing waits for the LAN: the other nodes do
        not.
        """
        conflicts, prepare = self.conflicts, self._preparation.prepare
        if isinstance(mounted, RefusedConfig):
            return mounted
        later = mounted.next.mounted if mounted.next else None
        running = self._reloader.configuration
        wanted, following = await asyncio.to_thread(
            lambda: (unprobed(mounted, facts, running), unprobed(later, facts, running) if later else Unprobed())
        )
        nodes = mounted.detection.hardware if mounted.detection else frozenset[str]()
        conflicts.expect(wanted, later=following, nodes=nodes)
        outcome = asyncio.to_thread(prepare, mounted, facts)
        if wanted.vips and not mounted.is_next:
            found, _ = await asyncio.gather(outcome, self._ask(is_first=is_first))
        else:
            found = await outcome
        self._conflicts_version, withheld = conflicts.version, conflicts.withheld
        return await asyncio.to_thread(prepare, mounted, facts, withheld=withheld) if withheld else found

    async def _ask(self, *, is_first: bool) -> None:
        """Ask the LAN for new VIPs, before the first start of keepalived for all that other nodes may have."""
        if is_first:
            await self.conflicts.recognise()
        await self.conflicts.ask()

    async def _route_returns(self, mounted: MountedConfig, facts: NodeFacts) -> list[NodeProblem]:
        """Route replies as *mounted* wants it; return what keeps requests from coming in."""
        interface_of = partial(interface_on_node, mounted, facts)
        wanted, problems = read_routes(mounted.group, mounted.routes, interface_of, own=facts.address)
        self.return_routing.configure(wanted, problems)
        return await asyncio.to_thread(filter_problems, wanted.routes, facts)

    async def _install(self, localized: LocalizedConfig) -> Outcome:
        """Make *localized* what keepalived reads next; refused if the run directory cannot be written."""
        try:
            await self._reloader.install(localized)
        except OSError as error:
            message = f"the run directory cannot be written: {error.strerror}"
            return RefusedConfig(ProblemCode.RUN_DIRECTORY_UNWRITABLE, message, localized.excluded)
        return localized

    async def _rehearse(self, following: NextConfig | None, *, is_announced: bool) -> bool:
        """Find out and report whether this node can switch to *following*; True if there is none."""
        result = Rehearsal()
        if following is not None:
            facts = await self._facts(following.mounted)
            excluded = {each.name for each in self._reporter.status.excluded}
            result = await asyncio.to_thread(self._preparation.rehearse, following, facts, excluded=excluded)
        self._reporter.record_rehearsal(following, result, announced=is_announced)
        return result.problem is None

    async def _facts(self, mounted: MountedConfig | RefusedConfig) -> NodeFacts:
        """The node as it is, with its route to the address of ``interfaceFromIP``."""
        return await self._network.facts(mounted.interface_from_ip if isinstance(mounted, MountedConfig) else "")
