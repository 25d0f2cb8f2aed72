"""The agent's settings, and its process."""

import asyncio
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kavip.agent import main
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.main import AgentSettings, main_async
from kavip.errors import SettingsError


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"node_name": ""}, "--node-name (KAVIP_AGENT_NODE_NAME)"),
        ({"node_name": "a b"}, "--node-name"),
        ({"node_ip": "192.0.2.300"}, "--node-ip"),
        ({"allowed_cidrs": "192.0.2.0/24, x"}, "--allowed-cidrs"),
        ({"allowed_cidrs": "192.0.2.1/24"}, "--allowed-cidrs"),
        ({"metrics": "graphite"}, "--metrics"),
        ({"port": 0}, "--port"),
        ({"port": 70000}, "--port"),
        ({"poll_milliseconds": 0}, "--poll-milliseconds"),
    ],
)
def test_a_malformed_setting_is_named(changes: dict[str, Any], named: str) -> None:
    """The error names flag, variable, value and remedy in one line."""
    with pytest.raises(SettingsError) as caught:
        AgentSettings(**{"node_name": "n1", **changes})
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_node_itself_is_always_allowed() -> None:
    """kubelet's probes come from its address."""
    settings = AgentSettings(node_name="n1", node_ip="192.0.2.11", allowed_cidrs="198.51.100.0/24")
    assert [str(network) for network in settings.networks] == ["198.51.100.0/24", "192.0.2.11/32"]
    assert AgentSettings(node_name="n1", node_ip="192.0.2.11").networks == ()


async def test_a_missing_run_directory_is_named(tmp_path: Path) -> None:
    """The directory is mounted, not created."""
    with pytest.raises(SettingsError, match="run-dir"):
        await main_async(AgentSettings(node_name="n1", run_dir=str(tmp_path / "nowhere")))


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """*folder* while another agent uses it."""
    handle = os.open(folder, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


@pytest.mark.slow
def test_an_init_container_beside_an_agent_writes_nothing(tmp_path: Path) -> None:
    """Alone it installs a first configuration, whatever is mounted."""
    command = [sys.executable, "-m", "kavip", "agent", "--once", "--node-name=n1", f"--run-dir={tmp_path}"]
    with claimed(tmp_path):
        subprocess.run(command, check=True, timeout=120, capture_output=True)
        assert not [*tmp_path.iterdir()]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    assert (tmp_path / "keepalived.conf").exists()


@pytest.mark.parametrize("ends", [True, False])
async def test_an_agent_waits_for_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    """The new agent waits until the old one ends, or until it is stopped itself."""
    monkeypatch.setattr(main, "_RETRY", 0.01)
    stopped = asyncio.Event()
    with claimed(tmp_path):
        waiting = asyncio.create_task(main._wait_for_claim(RunDirectory(tmp_path), stopped))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        if not ends:
            stopped.set()
            assert not await waiting
    if ends:
        assert await waiting


def test_the_agent_imports_no_kubernetes_client() -> None:
    """It imports no library of the webhook or the renderer either."""
    code = (
        "import sys, kavip.agent.main\n"
        "heavy = ('kubernetes_asyncio', 'kavip.kube', 'kavip.snapshot', 'aiohttp', 'jinja2', 'cryptography', 'yaml')\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmRSS')).split()[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    imported, kilobytes = done.stdout.splitlines()
    assert imported == "[]"
    assert int(kilobytes) < 60_000
