"""
Keeps one node's keepalived on the configuration in the mount.

What it promises:

* the daemon never sees a configuration that was not localised, read by :mod:`~kavip.agent.config.validate` and accepted
  by ``keepalived --config-test``; an instance that is refused is left out, and its neighbours run; where the fault is
  nobody's own, the last good configuration runs on; the state says why;
* a new configuration counts as running only when the daemon was seen to have read it;
* a daemon that dies of a configuration finds the last good one at its next start, and is shown the other one again only
  after a growing pause;
* addresses that a dead daemon left on the node go at once.

Everything that blocks runs in threads; :meth:`Reloader.step` is called by one task only.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Final

import structlog

from kavip.agent import mount, netlink
from kavip.agent.config.exclude import spares_of
from kavip.agent.config.facts import KUBE_PROXY_INTERFACE, Facts
from kavip.agent.config.localize import Mounted, Next, localize, named, strays
from kavip.agent.config.model import Localized, Refused
from kavip.agent.config.switchover import NEAR, Appointment, is_renewed, running_password, target, timestamp
from kavip.agent.health.checks import Checks
from kavip.agent.health.endpoints import Locals
from kavip.agent.health.threshold import complaint
from kavip.agent.http.state import Moments, Status
from kavip.agent.joining import PAUSE, Newcomer
from kavip.agent.keepalived import process as daemons
from kavip.agent.keepalived.bisect import Sieve
from kavip.agent.keepalived.cleanup import Sweeper
from kavip.agent.keepalived.configtest import Trial, stranger
from kavip.agent.keepalived.dump import Dump
from kavip.agent.keepalived.monitor import Witness
from kavip.agent.keepalived.process import Daemon
from kavip.agent.keepalived.reload import RECHECK, RETRY, Runner
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.keepalived.trackfiles import Tracks
from kavip.agent.mount import Passwords
from kavip.agent.rtnetlink import Change
from kavip.api.address import Address
from kavip.vrrp.targets import NodeEndpoints

CA_DIR: Final = Path("/etc/kavip/ca")
NOWHERE: Final = NodeEndpoints()
_INOTIFY: Final = "raise fs.inotify.max_user_instances of the node"
_DEAF: Final = f"keepalived does not heed health checks and endpoints: {_INOTIFY}, and restart keepalived"
Outcome = Localized | Refused
log = structlog.get_logger()


class Reloader:
    """One group on one node."""

    def __init__(
        self,
        *,
        node: str,
        node_ip: Address | None,
        config_dir: Path,
        passwords: Passwords,
        run_directory: RunDirectory,
        trial: Trial,
        ca_dir: Path = CA_DIR,
        here: NodeEndpoints = NOWHERE,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._now, self._trial = now, trial
        self._config_dir, self._passwords, self._files = config_dir, passwords, run_directory
        self._sieve, self._sweeper = Sieve(trial.judge), Sweeper(node, node_ip, run_directory)
        self._rehearsal = Sieve(trial.judge)  # of what is next: what one remembers is no use for the other
        self._appointment = Appointment(now, time.monotonic)
        self._newcomer = Newcomer(time.monotonic, now)
        self._witness = Witness(run_directory)
        self.tracks = Tracks(run_directory.tracks)
        self.checks = Checks(self.tracks, ca_dir=ca_dir, here=here)
        self.locals = Locals(node, self.tracks, hosts=("127.0.0.1", str(node_ip or ""), "::1"))
        self._runner = Runner(node, run_directory, self._witness, self._sweeper, self.tracks)
        self._status = Status(node=node)
        self._seen: tuple[Daemon | None, Mounted | Refused, int] | None = None
        self._given: tuple[tuple[Mounted, Facts, Localized | None], Outcome] | None = None
        self._deaf = ""
        self._moves = 0  # how often the node has changed
        self._due = 0.0

    @property
    def status(self) -> Status:
        """What it has come to."""
        return replace(
            self._status,
            now=timestamp(self._now()) if self._status.prepared or self._status.next_refused else "",
            config_hash=self._runner.config_hash,
            reloads=self._runner.reloads,
            failed_reloads=self._runner.failed_reloads,
            reload_seconds=self._runner.reload_seconds,
            removed_addresses=self._sweeper.removed,
            checks=self.checks.asked,
            note="; ".join(each for each in (self._status.note, self._deaf, complaint(self.checks.asked)) if each),
            locals=self.locals.seen,
        )

    @property
    def daemon(self) -> Daemon | None:
        """The daemon that it saw last."""
        return self._seen[0] if self._seen else None

    @property
    def moments(self) -> Moments:
        """When each instance of the last dump came into its state."""
        return self._witness.moments

    async def start(self) -> None:
        """Read what an earlier agent of this pod left, and ask the program who it is."""
        await self._identify()
        await self._runner.start()
        self._newcomer.begin(self._runner.good)

    async def _identify(self) -> None:
        """Ask the program who it is; on a busy node it may be too slow to say."""
        self._witness.program = await asyncio.to_thread(self._trial.program)
        self._update(version=self._witness.program.version)

    async def prepare(self) -> None:
        """
        Give keepalived a configuration to start with: the mounted one, else the last good one, else an empty one.

        Kubernetes may run an init container again beside the others: a keepalived that runs is left alone.
        """
        await self.start()
        if await self._witness.daemon():
            return
        try:
            mounted, _ = await self._look()
            if isinstance(mounted, Mounted):
                await self.checks.ask_once(mounted.checks)
                await self.locals.ask_once(mounted.locals)
            await self._settle(None, mounted)
        except Exception:  # the edge: whatever goes wrong, the pod must start
            log.exception("first configuration failed")
        await self._runner.ensure()

    async def step(self) -> float:
        """Do what is to be done now, if anything is; returns the seconds after which there may be more."""
        daemon = await self._witness.daemon()
        mounted, left = await self._look()
        if left is not None and 0 < left <= NEAR:
            await asyncio.sleep(left)
            mounted, left = await self._look()
        if isinstance(mounted, Mounted):
            self.locals.want(mounted.locals)
        await self._listen()
        if isinstance(mounted, Mounted) and self._newcomer.gives_way(mounted):
            mounted = replace(mounted, held=self._newcomer.why)
            self._update(new_password=self._status.new_password or timestamp(self._now()))
        seen = daemon, mounted, self._moves
        soon = max(left - NEAR / 2, 0.0) if left else inf
        if seen == self._seen and (rest := self._due - time.monotonic()) > 0:
            return min(rest, soon, PAUSE if self._is_new else inf)
        if isinstance(mounted, Mounted):
            await self.checks.want(mounted.checks)
        pause = min(await self._settle(daemon, mounted), self._runner.patience)
        await self._runner.ensure()
        if daemon:
            done = await self._runner.reload(daemon)
            pause = min(pause, done.pause)
            if done.refused is not None:
                self._update(refused=done.refused)
        if not await self._rehearse(mounted.next if isinstance(mounted, Mounted) else None, left):
            pause = min(pause, RETRY)
        self._seen = seen
        self._due = time.monotonic() + pause
        return min(pause, soon, PAUSE if self._is_new else inf)

    @property
    def _is_new(self) -> bool:
        """Whether the daemon runs something of which it is not known yet whether others accept it."""
        return self._newcomer.listens and bool(self._runner.config_hash)

    async def _listen(self) -> None:
        """Find out whether the daemon has noticed what the track files say, and whether it accepts what it hears."""
        if self._is_new and not running_password(self._runner.installed):
            self._newcomer.settle()
        dump = await self.dump() if self.tracks.awaits or self._is_new else None
        if dump is None:
            return
        if self._is_new and self._runner.installed:
            self._newcomer.hear(self._runner.installed, dump)
        if not self.tracks.awaits:
            return
        is_deaf = self.tracks.unheeded(dump)
        if is_deaf and not self._deaf:
            log.error("keepalived does not hear of its track files", remedy=_INOTIFY)
        self._deaf = _DEAF if is_deaf else ""

    def stumble(self) -> None:
        """Say that a step has failed, until one succeeds."""
        self._update(note="the agent failed when it looked at this node last, and tries again: its log says why")

    def look_again(self) -> None:
        """Know that the node has changed: the next step looks at it whatever the mount says."""
        self._moves += 1
        for each in (self._sieve, self._rehearsal):
            each.doubt()

    def matters(self, change: Change) -> bool:
        """Whether *change* may change what is right here: VIPs come and go, and most interfaces are pods'."""
        mounted = self._seen[1] if self._seen else None
        texts = [each.text for each in (mounted, self._runner.installed) if isinstance(each, Mounted | Localized)]
        if change.address:
            return not any(f" {change.address}/" in text for text in texts)
        ends = (f" {change.interface}\n", f" {change.interface} ")
        return change.interface == KUBE_PROXY_INTERFACE or any(end in text for text in texts for end in ends)

    async def dump(self) -> Dump | None:
        """The daemon's instances, fresh; None when it does not answer."""
        return await self._witness.dump(self._runner.configuration)

    async def _settle(self, daemon: Daemon | None, mounted: Mounted | Refused) -> float:
        """
        Install the wanted configuration, unless it is refused; with no *daemon*, take away what one left.

        Returns the seconds after which to look again.
        """
        if daemon is None:
            self._runner.lose()
            await asyncio.to_thread(daemons.remove_stale_pid_files, self._files.path, config=self._files.config)
        facts = await self._facts(mounted)
        # In a thread: 20,000 VIPs take more than 100 ms, in which the probes want an answer.
        outcome = await asyncio.to_thread(self._outcome, mounted, facts, self._sieve_of(mounted))
        if daemon is None:
            wanted = named(mounted, facts) if isinstance(mounted, Mounted) else frozenset()
            await self._sweeper.sweep(facts, wanted=wanted)
        if isinstance(outcome, Localized) and not self._runner.has(outcome):
            outcome = await self._install(outcome)
        self._runner.find(facts.interfaces)
        if not self._witness.program.version:
            await self._identify()
        notes = (
            await asyncio.to_thread(netlink.arp_warning, facts.interfaces),
            stranger(self._witness.program.version),
        )
        self._say(mounted, outcome, notes=notes)
        unsettled = isinstance(outcome, Refused) or outcome.note
        return RETRY if unsettled else RECHECK

    async def _rehearse(self, following: Next | None, left: float | None) -> bool:
        """Find out whether this node could run what is next, of which *left* seconds are left; whether that is so."""
        if following is None:
            self._update(prepared="", next_refused="", switch_at="")
            return True
        facts = await self._facts(following.mounted)
        outcome = await asyncio.to_thread(self._outcome, following.mounted, facts, self._rehearsal)
        known = {each.name for each in self._status.left_out}
        fresh = next((each for each in outcome.left_out if each.name not in known), None)
        why = outcome.reason if isinstance(outcome, Refused) else strays(outcome, self._runner.good, facts)
        if fresh and not why:
            why = f"instance {fresh.name}: {fresh.fault.reason}"
        at = following.at if left is not None and not why else ""
        self._update(prepared="" if why else following.digest, next_refused=why, switch_at=at)
        return not why

    async def _facts(self, mounted: Mounted | Refused) -> Facts:
        """What the node is, and how it reaches what *mounted* has its interface from."""
        return await self._sweeper.facts(mounted.interface_from_ip if isinstance(mounted, Mounted) else "")

    def _sieve_of(self, mounted: Mounted | Refused) -> Sieve:
        """Who judges *mounted*: what was next has been rehearsed."""
        return self._rehearsal if isinstance(mounted, Mounted) and mounted.is_next else self._sieve

    def _outcome(self, mounted: Mounted | Refused, facts: Facts, sieve: Sieve) -> Outcome:
        """What this node is to run, or why it is refused."""
        if isinstance(mounted, Refused):
            return mounted
        runner = self._runner
        outcome = self._localized(mounted, facts, runner.good)
        if isinstance(outcome, Refused) or runner.has(outcome):
            return outcome
        sifted = sieve.sift(outcome, spares_of(runner.good, facts))
        if isinstance(sifted, Localized) and not runner.has(sifted) and runner.penalties.bars(sifted.text):
            return Refused(runner.penalties.reason(sifted.text), sifted.left_out)
        return sifted

    def _localized(self, mounted: Mounted, facts: Facts, good: Localized | None) -> Outcome:
        """What :func:`localize` makes of these; the node is looked at often, and mostly it is the same."""
        given = mounted, facts, good
        if self._given is None or self._given[0] != given:
            self._given = given, localize(mounted, facts, good)
        return self._given[1]

    async def _install(self, localized: Localized) -> Outcome:
        """Make *localized* what keepalived reads next; refused where there is no room for it."""
        try:
            await self._runner.install(localized)
        except OSError as error:
            return Refused(f"the run directory cannot be written: {error.strerror}", localized.left_out)
        return localized

    async def _look(self) -> tuple[Mounted | Refused, float | None]:
        """What is to run now, and in how many seconds something else is; None: nothing is announced."""
        mounted = await asyncio.to_thread(mount.read, self._config_dir, self._passwords)
        if isinstance(mounted, Refused):
            return mounted, None
        left, installed = self._appointment.left(mounted.next), self._runner.installed
        since = self._status.new_password or timestamp(self._now())
        is_new = is_renewed(mounted, installed) or self._newcomer.is_outvoted
        self._update(new_password=since if is_new else "")
        return target(mounted, left, installed), left

    def _say(self, mounted: Mounted | Refused, outcome: Outcome, *, notes: tuple[str, ...]) -> None:
        """Bring the status up to date, and log a refusal once."""
        # What is installed again, or still, is in order only when the daemon was seen to run it.
        held = mounted.held if isinstance(mounted, Mounted) else ""
        refused = held or (
            outcome.reason if isinstance(outcome, Refused) else self._runner.penalties.reason(outcome.text)
        )
        if refused and refused != self._status.refused:
            self._update(refusals=self._status.refusals + 1)
            log.error("configuration refused", reason=refused)
        if isinstance(outcome, Localized) or outcome.left_out:  # else what was left out is left out still
            for each in outcome.left_out:
                if each not in self._status.left_out:
                    log.error("instance left out", instance=each.name, reason=each.fault.reason, kept=each.kept)
            self._update(left_out=outcome.left_out)
        if isinstance(mounted, Mounted):
            self._update(wanted_hash=mounted.config_hash, group=mounted.group)
        own = outcome.note if isinstance(outcome, Localized) else ""
        note = "; ".join(each for each in (own, *notes) if each)
        if note and note != self._status.note:
            log.warning("something is unusual", note=note)
        self._update(refused=refused, note=note)

    def _update(self, **changes: object) -> None:
        self._status = replace(self._status, **changes)  # type: ignore[arg-type]  # fields of Status
