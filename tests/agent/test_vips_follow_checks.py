"""Health checks beside a real keepalived: the VIP follows them."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from hack.testbed import process
from hack.testbed.segment import Host
from kavip import names
from kavip.api.group import Check
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod
from tests.agent.podstates import WEB, WEB_VIP, ranked
from tests.support import webserver
from tests.vrrp.livedaemons import BEFORE_OTHERS

pytestmark = pytest.mark.netns

PORT = 8080


class Site:
    """A pod, and the service on its node that is checked."""

    def __init__(self, pod: Pod, folder: Path) -> None:
        self.pod, self._status = pod, folder / f"{pod.host.name}-status"
        self.answers(200)

    def answers(self, status: int) -> None:
        """Let the service answer with *status*."""
        fresh = self._status.with_suffix(".new")
        fresh.write_text(str(status))
        fresh.replace(self._status)

    def serve(self, stack: ExitStack) -> None:
        """Start the service."""
        host: Host = self.pod.host
        command = (*BEFORE_OTHERS, sys.executable, "-P", str(webserver.__file__), str(self._status), str(PORT))
        server = host.spawn(*command, log=self._status.with_suffix(".log"))
        stack.callback(process.kill, [server])

    def mounts(self, check: Check) -> str:
        """Mount a configuration with *check* of the service."""
        text = mounts.rendered({WEB: WEB_VIP}, checks=[check])
        self.pod.config.write(text, checks=[msgspec.to_builtins(check)])
        return text

    def runs(self, check: Check) -> None:
        """Start the pod with *check* of the service."""
        text = self.mounts(check)
        self.pod.start()
        self.pod.runs(mounts.hash_of(text))

    @property
    def is_master(self) -> bool:
        """Whether the VIP is on this node, and its instance is master."""
        return WEB in self.pod.masters() and WEB_VIP in self.pod.addresses()

    @property
    def told(self) -> tuple[str, bool, str]:
        """The check in ``/state``: name, result, last answer."""
        (check,) = self.pod.state()["checks"]
        return check["name"], check["ok"], check["message"]

    @property
    def changes(self) -> tuple[int, ...]:
        """How often this node became master and stopped being master."""
        return self.pod.transitions()[WEB]


@pytest.fixture
def sites(pod: MakePod, tmp_path: Path) -> Iterator[list[Site]]:
    """Two nodes with the service; no pod runs yet."""
    with ExitStack() as stack:
        made = [Site(pod(name), tmp_path) for name in ("n1", "n2")]
        for each in made:
            each.serve(stack)
        yield made


def http(on_failure: str) -> Check:
    """A check of the service with the shortest times."""
    return Check(
        "web", f"http://127.0.0.1:{PORT}/", interval_seconds=1, fail_after=1, succeed_after=3, on_failure=on_failure
    )


def led(sites: list[Site]) -> tuple[Site, Site]:
    """The node with the higher priority once it is master, and the other one."""
    first, _ = ranked([each.pod for each in sites], WEB)
    leader, other = sorted(sites, key=lambda each: each.pod is not first)
    leader.pod.wait_until("the leader is master", lambda: leader.is_master and not other.is_master)
    return leader, other


def test_a_failing_service_loses_the_vip(sites: list[Site]) -> None:
    """The other node takes it, until the check passes often enough. Pods stay ready."""
    for each in sites:
        each.runs(http("Fault"))
    leader, other = led(sites)
    leader.answers(503)
    other.pod.wait_until("the other node has the VIP", lambda: other.is_master)
    leader.pod.wait_until("it says why", lambda: leader.pod.role(WEB) == "FAULT")
    leader.pod.wait_until("the agent reports the check", lambda: leader.told == ("web", False, "status 503"))
    leader.pod.wait_until("it says so in words", lambda: leader.pod.state()["note"] == "health check web fails")
    assert 'kavip_agent_check_up{check="web"} 0.0' in leader.pod.get(names.METRICS_PATH)[1]
    assert leader.pod.get(names.READY_PATH)[0] == 200
    leader.answers(200)
    leader.pod.wait_until("the leader has it back", lambda: leader.is_master and not other.is_master)
    leader.pod.wait_until("it says so", lambda: leader.told[:2] == ("web", True) and not leader.pod.state()["note"])


def test_a_check_that_fails_everywhere_takes_no_vip(sites: list[Site]) -> None:
    """LowerPriority moves it to a healthy node while there is one, and then back."""
    for each in sites:
        each.runs(http("LowerPriority"))
    leader, other = led(sites)
    leader.answers(500)
    other.pod.wait_until("the other node has the VIP", lambda: other.is_master and not leader.is_master)
    other.answers(500)
    leader.pod.wait_until("it is where it was at first", lambda: leader.is_master and not other.is_master)
    assert [each.told[:2] for each in sites] == [("web", False), ("web", False)]


def test_a_pod_that_starts_with_a_failing_service_takes_no_vip(sites: list[Site]) -> None:
    """The first result is there before keepalived starts. The VIP comes once the service is healthy."""
    site = sites[0]
    site.answers(503)
    text = site.mounts(http("Fault"))
    site.pod.prepare()
    site.pod.start_keepalived()
    said = site.pod.keepalived_log
    site.pod.wait_until("keepalived knows, with no agent there", lambda: "FAULT" in said.read_text())
    site.pod.start_agent()
    site.pod.runs(mounts.hash_of(text))
    site.pod.wait_until("it knows how it is", lambda: site.pod.role(WEB) != "")
    assert site.pod.role(WEB) == "FAULT"
    assert [*site.changes] == [0, 0]
    site.answers(200)
    site.pod.wait_until("it is master", lambda: site.is_master)
    site.pod.kill_agent()
    site.answers(503)
    site.pod.start_agent()
    site.pod.wait_until("a new agent sees it", lambda: site.pod.role(WEB) == "FAULT")
    site.pod.kill_agent()
    site.pod.start_agent()
    site.pod.runs(mounts.hash_of(text))
    site.pod.wait_until("it knows how it is", lambda: site.pod.role(WEB) != "")
    assert site.pod.role(WEB) == "FAULT"
    assert site.changes[0] == 1  # keepalived's second counter misses a change during a reload
