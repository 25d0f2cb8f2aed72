"""
``kavip agent``: the composition root of the node side.

``--once`` is for the init container: it installs the first configuration, with which keepalived starts, and exits. It
succeeds whatever is mounted: a bad configuration must not stop the pod, and with it all VIPs, from starting.
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
from kavip.agent.handover import LIMIT, WINDOW, PodEnd
from kavip.agent.http.server import JSON, AgentServer, Network, Page, PageContent, PageRequest
from kavip.agent.keepalived.configtest import ConfigTest
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.mount import PasswordFiles
from kavip.agent.peers.follower import PeerFollower
from kavip.agent.reconciler import Reconciler
from kavip.agent.report.metrics import CONTENT_TYPE, exposition
from kavip.agent.report.state import AgentStatus, agent_state, encode
from kavip.agent.watch import Watcher
from kavip.api.address import Address, parse_address
from kavip.api.agent import SEPARATOR, VIPS_BY_HASH
from kavip.errors import BadInput, SettingsError
from kavip.names import Exporter
from kavip.settings import flag_and_variable, setting
from kavip.vrrp.targets import NodeEndpoints

_THREADS: Final = 4
_MALLOC: Final = {-8: 1, -3: 64 << 10, -1: 64 << 10}
"""
M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD of mallopt(3): one heap a thread, and buffers of dumps that stay in a
heap, would cost megabytes.
"""
_RETRY: Final = 2.0
"""Seconds until the next attempt: to bind, as the address may be added later, or to lock the run directory."""

_LOOPBACK: Final = ip_network("127.0.0.0/8")
_HOOK_SECONDS: Final = 2 * WINDOW + LIMIT + 1
"""Seconds for a request of a preStop hook, which waits for the hand-over."""

_NODE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
PREFIX: Final = f"{names.ENV_PREFIX}_AGENT"
log = structlog.get_logger()


def setting_name(name: str) -> str:
    """The name of a setting for messages: flag and variable."""
    return flag_and_variable(name, prefix=PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Settings of ``kavip agent``: each field is a flag and a ``KAVIP_AGENT_*`` variable."""

    node_name: str = setting("", "name of this node, spec.nodeName")
    node_ip: str = setting(
        "", "the node's InternalIP, status.hostIP: the address to listen on, never a VIP; empty: listen on all"
    )
    config_dir: str = setting("/etc/kavip/config", "where the group's ConfigMap is mounted")
    password_file: str = setting(
        "", "the key of the group's Secret, mounted as a file; empty: the group has no password"
    )
    ca_dir: str = setting("/etc/kavip/ca", "where the CAs of health checks are mounted, CHECK.crt")
    password_dir: str = setting(
        "", "where the group's Secrets are mounted, each in a folder of its own; the ConfigMap names the key"
    )
    kubeconfig: str = setting(
        "", "kubeconfig of an account that may list nodes, for static groups that follow them; empty: they follow none"
    )
    state_dir: str = setting(
        "", "directory that keeps the last list of nodes over reboots; empty: the run directory, which does not"
    )
    run_dir: str = setting("/run/kavip", "directory shared with keepalived: configuration, pid files, dumps")
    keepalived: str = setting("/usr/sbin/keepalived", "the keepalived program that tests configurations")
    port: int = setting(names.AGENT_PORT, "port of /metrics, /state, /livez and /readyz")
    allowed_cidrs: str = setting(
        "", "comma-separated CIDRs of clients that are allowed; the node itself is always allowed; empty: all"
    )
    metrics: str = setting(
        Exporter.GEN2BRAIN.value,
        "the exporter that determines the names of keepalived's metrics",
        choices=tuple(Exporter),
    )
    poll_milliseconds: int = setting(
        5000,
        "milliseconds between two reads of the mount if the kernel reports no change",
        minimum=10,
    )
    once: bool = setting(False, "write the first configuration and exit (the init container)")
    log_level: str = setting("info", "least severe log line", choices=("debug", "info", "warning", "error"))
    log_format: str = setting(
        "auto", "log lines; auto: text on a terminal, else json", choices=("auto", "json", "text")
    )

    def __post_init__(self) -> None:
        """Raise :class:`SettingsError` for an invalid value."""
        for each in fields(self):
            _check(each.name, getattr(self, each.name), each.metadata["choices"], minimum=each.metadata["minimum"])
        if not _NODE.fullmatch(self.node_name):
            raise SettingsError(f"{setting_name('node_name')}: {self.node_name!r}: want the name of a node")
        if not 0 < self.port <= 65535:
            raise SettingsError(f"{setting_name('port')}: {self.port!r}: want a port, 1 to 65535")
        _ = self.address, self.networks  # both raise for an invalid value

    @property
    def address(self) -> Address | None:
        """The node's address; None if it is not set."""
        try:
            return parse_address(self.node_ip) if self.node_ip else None
        except BadInput as error:
            raise SettingsError(f"{setting_name('node_ip')}: {error}") from None

    @property
    def passwords(self) -> PasswordFiles:
        """Where passwords are mounted."""
        folder, file = self.password_dir, self.password_file
        return PasswordFiles(Path(folder) if folder else None, Path(file) if file else None)

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks of allowed clients; empty: all are allowed."""
        items = [item.strip() for item in self.allowed_cidrs.split(",") if item.strip()]
        try:
            given = [ip_network(item) for item in items]
        except ValueError as error:
            raise SettingsError(f"{setting_name('allowed_cidrs')}: {error}") from None
        # kubelet probes a pod on the host network from the node's own address
        return (*given, ip_network(self.node_ip)) if given and self.node_ip else tuple(given)


async def main_async(settings: AgentSettings) -> int:
    """Run until SIGTERM, SIGINT or SIGQUIT, or once; returns the exit status."""
    _limit_memory()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS))
    run_directory = RunDirectory(Path(settings.run_dir))
    if not await asyncio.to_thread(run_directory.path.is_dir):
        raise SettingsError(f"{setting_name('run_dir')}: {settings.run_dir!r}: want a directory that exists")
    reconciler = _reconciler(settings, run_directory)
    is_alone = await asyncio.to_thread(run_directory.claim)
    if settings.once:
        if is_alone:  # otherwise the agent that runs installs what keepalived needs
            await reconciler.prepare()
        return 0
    stopped = asyncio.Event()
    end = PodEnd(stopped)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGQUIT, end.end_pod)
    if is_alone or await _wait_for_claim(run_directory, stopped):
        await _run(reconciler, settings, run_directory, end)
    return 0


def _limit_memory() -> None:
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # musl has none, and no such heaps
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)


def _reconciler(settings: AgentSettings, run_directory: RunDirectory) -> Reconciler:
    return Reconciler(
        node=settings.node_name,
        node_ip=settings.address,
        config_dir=Path(settings.config_dir),
        passwords=settings.passwords,
        run_directory=run_directory,
        config_test=ConfigTest(settings.keepalived, run_directory, node=settings.node_name),
        ca_dir=Path(settings.ca_dir),
        environment=node_environment(settings.node_ip, os.environ),
        peers=PeerFollower(
            settings.node_name,
            Path(settings.state_dir or settings.run_dir),
            port=settings.port,
            kubeconfig=Path(settings.kubeconfig) if settings.kubeconfig else None,
        ),
    )


async def _run(reconciler: Reconciler, settings: AgentSettings, run_directory: RunDirectory, end: PodEnd) -> None:
    """Reconcile and answer requests until a signal stops the agent."""
    await reconciler.start()
    mounts = {Path(settings.config_dir), *await asyncio.to_thread(settings.passwords.folders)}
    watcher = Watcher(
        mounts,
        run_directory.path,
        observe=reconciler.observe_network,
        is_relevant=reconciler.is_relevant,
        network_changed=reconciler.network_changed,
    )
    server = AgentServer(pages(reconciler, Exporter(settings.metrics)), allowed=settings.networks)
    stepping = asyncio.Lock()
    hooks = AgentServer({names.HANDOVER_PATH: lambda _: end.page()}, allowed=(_LOOPBACK,), seconds=_HOOK_SECONDS)
    gc.collect()
    gc.freeze()  # these objects stay for ever; scanning them again and again would double the cost of an answer
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_reconcile(reconciler, watcher, stepping, longest=settings.poll_milliseconds / 1000)),
            group.create_task(reconciler.feeds.endpoints.run()),
            group.create_task(reconciler.conflicts.run(watcher.wake)),
            group.create_task(reconciler.return_routing.run()),
            group.create_task(reconciler.peers.run(watcher.wake)),
            group.create_task(_listen(server, settings.node_ip, settings.port)),
        ]
        if settings.address:  # otherwise the port is taken: the agent listens on all addresses
            tasks.append(group.create_task(_listen(hooks, names.HANDOVER_HOST, settings.port)))
        await end.stopped.wait()

        async def hand_over() -> None:
            await stepping.acquire()  # and kept: another step would raise the priorities again
            await reconciler.hand_over()

        is_over = await end.run(hand_over)
        for task in tasks:
            task.cancel()
    await reconciler.feeds.checks.close()
    if is_over or not await reconciler.keepalived_runs():
        await reconciler.return_routing.remove()


async def _wait_for_claim(run_directory: RunDirectory, stopped: asyncio.Event) -> bool:
    """Wait until no other agent uses this directory; False if *stopped* meanwhile."""
    log.error("run directory in use by another agent")
    while not await asyncio.to_thread(run_directory.claim):
        try:
            async with asyncio.timeout(_RETRY):
                await stopped.wait()
            return False
        except TimeoutError:
            pass
    return True


def node_environment(node_ip: str, environment: Mapping[str, str]) -> NodeEndpoints:
    """
    The address of the Service ``kubernetes``, from variables that kubelet sets in every container.

    kubelet sets them also with ``enableServiceLinks: false``.
    """
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    return NodeEndpoints(node_ip, host, int(port)) if host and port.isdecimal() else NodeEndpoints(node_ip)


def pages(reconciler: Reconciler, style: Exporter) -> dict[str, Page]:
    """The agent's pages, by path."""

    async def state(request: PageRequest) -> PageContent:
        found = agent_state(reconciler.status, await reconciler.dump(), reconciler.state_changes)
        return PageContent(encode(found, by_hash=VIPS_BY_HASH in request.preferences), JSON)

    async def metrics(_: PageRequest) -> PageContent:
        return PageContent(exposition(reconciler.status, await reconciler.dump(), style=style), CONTENT_TYPE)

    async def live(_: PageRequest) -> PageContent:
        return _probe("" if await reconciler.dump() is not None else "keepalived does not answer")

    async def ready(_: PageRequest) -> PageContent:
        # Any configuration will do, not only the wanted one. A roll-out replaces all unready pods on all nodes
        # together, and the configurations that they still run would be lost. A new pod has none, so the roll-out stops
        # at it.
        return _probe(_not_ready(reconciler.status))

    return {names.STATE_PATH: state, names.METRICS_PATH: metrics, names.LIVE_PATH: live, names.READY_PATH: ready}


def _not_ready(status: AgentStatus) -> str:
    """Why no configuration runs; "" if one does."""
    if status.config_hash:
        return ""
    if status.refused:
        return status.refused.message
    return SEPARATOR.join(each.message for each in status.notes) or "no configuration runs yet"


def _probe(fault: str) -> PageContent:
    return PageContent(f"{fault}\n".encode(), status=HTTPStatus.SERVICE_UNAVAILABLE) if fault else PageContent(b"ok\n")


async def _reconcile(reconciler: Reconciler, watcher: Watcher, stepping: asyncio.Lock, *, longest: float) -> None:
    """Reconcile for ever, each step with *stepping*; one that fails is logged, and the next one tries again."""
    with watcher:
        while True:
            try:
                async with stepping:
                    pause = await reconciler.step()
                await watcher.watch_daemon(reconciler.daemon)
            except Exception:  # the edge: keepalived continues
                log.exception("step failed")
                reconciler.record_failed_step()
                await asyncio.sleep(1)
                pause = 0.0
            await watcher.wait(min(pause, longest))


async def _listen(server: AgentServer, host: str, port: int) -> None:
    """Serve for ever; until the port can be bound, the agent reconciles without it."""
    while True:
        try:
            async with server.listening(host, port):
                log.info("listening", host=host, port=port)
                await asyncio.Event().wait()
        except OSError as error:
            log.error("cannot listen", host=host, port=port, reason=error.strerror)
            await asyncio.sleep(_RETRY)


def _check(name: str, value: object, choices: tuple[str, ...], *, minimum: int) -> None:
    if choices and value not in choices:
        raise SettingsError(f"{setting_name(name)}: {value!r}: want one of {', '.join(choices)}")
    if isinstance(value, int) and value < minimum:
        raise SettingsError(f"{setting_name(name)}: {value!r}: want at least {minimum}")
