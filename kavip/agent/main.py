"""
``kavip agent``: the composition root of the node side.

``once`` is the init container: it writes the first configuration, so that keepalived has one to start with, and ends.
It succeeds whatever is in the mount: a bad configuration must not keep the pod, and with it all VIPs, from starting.
"""

import asyncio
import ctypes
import gc
import os
import re
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from http import HTTPStatus
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import structlog

from kavip import names
from kavip.agent.http.metrics import CONTENT_TYPE, exposition
from kavip.agent.http.server import JSON, Answer, Network, Page, Server
from kavip.agent.http.state import encode, state_of
from kavip.agent.keepalived.configtest import Trial
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.mount import Passwords
from kavip.agent.reconciler import Reloader
from kavip.agent.watch import Alarm
from kavip.api.address import Address, parse_address
from kavip.errors import BadInput, SettingsError
from kavip.names import Exporter
from kavip.settings import setting
from kavip.settings import shown as shown_with
from kavip.vrrp.targets import NodeEndpoints

_THREADS: Final = 4
_MALLOC: Final = {-8: 1, -3: 64 << 10, -1: 64 << 10}
"""
M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD of mallopt(3): a heap for each thread, and buffers of dumps that stay in
one, cost megabytes.
"""
_REBIND: Final = 2.0
"""Seconds until the next attempt to bind: the address may come later, the port may be another group's."""

_NODE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
PREFIX: Final = f"{names.ENV_PREFIX}_AGENT"
log = structlog.get_logger()


def shown(name: str) -> str:
    """How messages name a setting of the agent."""
    return shown_with(name, prefix=PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Settings of ``kavip agent``: each field is a flag and a ``KAVIP_AGENT_*`` variable."""

    node_name: str = setting("", "name of this node, spec.nodeName")
    node_ip: str = setting(
        "", "the node's InternalIP, status.hostIP: where to listen, and never a VIP; empty: listen on all"
    )
    config_dir: str = setting("/etc/kavip/config", "where the group's ConfigMap is mounted")
    password_file: str = setting(
        "", "the key of the group's Secret, mounted as a file; empty: the group has no password"
    )
    ca_dir: str = setting("/etc/kavip/ca", "where the CAs of health checks are mounted, CHECK.crt")
    password_dir: str = setting(
        "", "where the group's Secrets are mounted, each in a folder of its own; the ConfigMap says which key counts"
    )
    run_dir: str = setting("/run/kavip", "directory shared with keepalived: configuration, pid files, dumps")
    keepalived: str = setting("/usr/sbin/keepalived", "the keepalived program that checks configurations")
    port: int = setting(names.AGENT_PORT, "port of /metrics, /state, /livez and /readyz")
    allowed_cidrs: str = setting(
        "", "comma-separated CIDRs whose clients are answered; the node itself always; empty: all"
    )
    metrics: str = setting(Exporter.GEN2BRAIN.value, "whose names keepalived's metrics bear", choices=tuple(Exporter))
    poll_milliseconds: int = setting(
        5000,
        "how often the mount is looked at although nothing was heard of it: changes are told by the kernel",
        lowest=10,
    )
    once: bool = setting(False, "write the first configuration and exit (the init container)")
    log_level: str = setting("info", "least severe log line", choices=("debug", "info", "warning", "error"))
    log_format: str = setting(
        "auto", "log lines; auto: text on a terminal, else json", choices=("auto", "json", "text")
    )

    def __post_init__(self) -> None:
        """Raise :class:`SettingsError` for a value that cannot be."""
        for each in fields(self):
            _check(each.name, getattr(self, each.name), each.metadata["choices"], lowest=each.metadata["lowest"])
        if not _NODE.fullmatch(self.node_name):
            raise SettingsError(f"{shown('node_name')}: {self.node_name!r}: want the name of a node")
        if not 0 < self.port <= 65535:
            raise SettingsError(f"{shown('port')}: {self.port!r}: want a port, 1 to 65535")
        _ = self.address, self.networks

    @property
    def address(self) -> Address | None:
        """The node's address; None where it is not set."""
        try:
            return parse_address(self.node_ip) if self.node_ip else None
        except BadInput as error:
            raise SettingsError(f"{shown('node_ip')}: {error}") from None

    @property
    def passwords(self) -> Passwords:
        """Where passwords are."""
        folder, file = self.password_dir, self.password_file
        return Passwords(Path(folder) if folder else None, Path(file) if file else None)

    @property
    def networks(self) -> tuple[Network, ...]:
        """Whose requests are answered; empty: everybody's."""
        items = [item.strip() for item in self.allowed_cidrs.split(",") if item.strip()]
        try:
            given = [ip_network(item) for item in items]
        except ValueError as error:
            raise SettingsError(f"{shown('allowed_cidrs')}: {error}") from None
        # kubelet probes a pod on the host network from the node's own address
        return (*given, ip_network(self.node_ip)) if given and self.node_ip else tuple(given)


async def main_async(settings: AgentSettings) -> int:
    """Run until SIGTERM or SIGINT, or just once; returns the exit status."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # musl has none, and no such heaps
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS))
    run_directory = RunDirectory(Path(settings.run_dir))
    if not await asyncio.to_thread(run_directory.path.is_dir):
        raise SettingsError(f"{shown('run_dir')}: {settings.run_dir!r}: want a directory that exists")
    reloader = Reloader(
        node=settings.node_name,
        node_ip=settings.address,
        config_dir=Path(settings.config_dir),
        passwords=settings.passwords,
        run_directory=run_directory,
        trial=Trial(settings.keepalived, run_directory, node=settings.node_name),
        ca_dir=Path(settings.ca_dir),
        here=surroundings(settings.node_ip, os.environ),
    )
    is_alone = await asyncio.to_thread(run_directory.claim)
    if settings.once:
        if is_alone:  # else an agent that runs gives keepalived what it needs
            await reloader.prepare()
        return 0
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if not is_alone and not await _succeed(run_directory, stopped):
        return 0
    await reloader.start()
    mounts = {Path(settings.config_dir), *await asyncio.to_thread(settings.passwords.folders)}
    alarm = Alarm(mounts, run_directory.path, matters=reloader.matters, moved=reloader.look_again)
    gc.collect()
    gc.freeze()  # what is there by now stays; to look through it again and again would double what answers cost
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_follow(reloader, alarm, longest=settings.poll_milliseconds / 1000)),
            group.create_task(reloader.locals.run()),
            group.create_task(
                _listen(
                    Server(pages(reloader, Exporter(settings.metrics)), allowed=settings.networks),
                    settings,
                )
            ),
        ]
        await stopped.wait()
        for task in tasks:
            task.cancel()
    await reloader.checks.close()
    return 0


async def _succeed(run_directory: RunDirectory, stopped: asyncio.Event) -> bool:
    """Wait until no other agent has this directory; False when *stopped* meanwhile."""
    log.error("another agent has the run directory: waiting for its end")
    while not await asyncio.to_thread(run_directory.claim):
        try:
            async with asyncio.timeout(_REBIND):
                await stopped.wait()
            return False
        except TimeoutError:
            pass
    return True


def surroundings(node_ip: str, environment: Mapping[str, str]) -> NodeEndpoints:
    """What kubelet tells every container about the Service ``kubernetes``, whatever ``enableServiceLinks`` says."""
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    return NodeEndpoints(node_ip, host, int(port)) if host and port.isdecimal() else NodeEndpoints(node_ip)


def pages(reloader: Reloader, style: Exporter) -> dict[str, Page]:
    """What the agent answers, by path."""

    async def state() -> Answer:
        dump = await reloader.dump()
        return Answer(encode(state_of(reloader.status, dump, reloader.moments)), JSON)

    async def metrics() -> Answer:
        return Answer(exposition(reloader.status, await reloader.dump(), style=style), CONTENT_TYPE)

    async def live() -> Answer:
        return _probe("" if await reloader.dump() is not None else "keepalived does not answer")

    async def ready() -> Answer:
        status = reloader.status
        # Not the wanted one: a roll-out replaces at once, on all nodes, the pods that are not ready, and what they kept
        # running would be gone. A new pod has nothing to keep, so the roll-out stops at it.
        return _probe("" if status.config_hash else status.refused or status.note or "no configuration runs yet")

    return {names.STATE_PATH: state, names.METRICS_PATH: metrics, names.LIVE_PATH: live, names.READY_PATH: ready}


def _probe(fault: str) -> Answer:
    return Answer(f"{fault}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE) if fault else Answer(b"ok\n")


async def _follow(reloader: Reloader, alarm: Alarm, *, longest: float) -> None:
    """Step for ever; what goes wrong in one step is logged, and the next one tries again."""
    with alarm:
        while True:
            try:
                pause = await reloader.step()
                await alarm.follow(reloader.daemon)
            except Exception:  # the edge: keepalived runs on whatever happens here
                log.exception("step failed")
                reloader.stumble()
                await asyncio.sleep(1)
                pause = 0.0
            await alarm.wait(min(pause, longest))


async def _listen(server: Server, settings: AgentSettings) -> None:
    """Serve for ever; without a port the node's keepalived is looked after all the same."""
    while True:
        try:
            async with server.listening(settings.node_ip, settings.port):
                log.info("listening", host=settings.node_ip, port=settings.port)
                await asyncio.Event().wait()
        except OSError as error:
            log.error("cannot listen", host=settings.node_ip, port=settings.port, reason=error.strerror)
            await asyncio.sleep(_REBIND)


def _check(name: str, value: object, choices: tuple[str, ...], *, lowest: int) -> None:
    if choices and value not in choices:
        raise SettingsError(f"{shown(name)}: {value!r}: want one of {', '.join(choices)}")
    if isinstance(value, int) and value < lowest:
        raise SettingsError(f"{shown(name)}: {value!r}: want at least {lowest}")
