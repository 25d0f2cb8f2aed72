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
from tests.agent.podstates import WEB, WEB_VIP, by_priority
from tests.support import webserver
from tests.vrrp.livedaemons import BEFORE_OTHERS

pytestmark = pytest.mark.netns

PORT = 8080


class CheckedPod:
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
    def reported_check(self) -> tuple[str, bool, str]:
        """The check in ``/state``: name, result, last answer."""
        (check,) = self.pod.state()["checks"]
        return check["name"], check["ok"], check["message"]

    @property
    def changes(self) -> tuple[int, ...]:
        """How often this node became master and stopped being master."""
        return self.pod.transitions()[WEB]


@pytest.fixture
def checked_pods(pod: MakePod, tmp_path: Path) -> Iterator[list[CheckedPod]]:
    """Two nodes with the service; no pod runs yet."""
    with ExitStack() as stack:
        made = [CheckedPod(pod(name), tmp_path) for name in ("n1", "n2")]
        for each in made:
            each.serve(stack)
        yield made


def http(on_failure: str) -> Check:
    """A check of the service with the shortest times."""
    return Check(
        "web", f"http://127.0.0.1:{PORT}/", interval_seconds=1, fail_after=1, succeed_after=3, on_failure=on_failure
    )


def leader_and_backup(checked_pods: list[CheckedPod]) -> tuple[CheckedPod, CheckedPod]:
    """The node with the higher priority once it is master, and the other one."""
    first, _ = by_priority([each.pod for each in checked_pods], WEB)
    leader, other = sorted(checked_pods, key=lambda each: each.pod is not first)
    leader.pod.wait_until("the leader is master", lambda: leader.is_master and not other.is_master)
    return leader, other


def test_a_failing_service_loses_the_vip(checked_pods: list[CheckedPod]) -> None:
    """The other node takes it, until the check passes often enough. Pods stay ready."""
    for each in checked_pods:
        each.runs(http("Fault"))
    leader, other = leader_and_backup(checked_pods)
    leader.answers(503)
    other.pod.wait_until("the other node has the VIP", lambda: other.is_master)
    leader.pod.wait_until("the instance is in FAULT", lambda: leader.pod.role(WEB) == "FAULT")
    leader.pod.wait_until("the agent reports the check", lambda: leader.reported_check == ("web", False, "status 503"))
    leader.pod.wait_until("the note names the check", lambda: leader.pod.state()["note"] == "health check web fails")
    assert 'kavip_agent_check_up{check="web"} 0.0' in leader.pod.page(names.METRICS_PATH)[1]
    assert leader.pod.page(names.READY_PATH)[0] == 200
    leader.answers(200)
    leader.pod.wait_until("the leader has the VIP again", lambda: leader.is_master and not other.is_master)
    leader.pod.wait_until(
        "the agent reports that the check passes",
        lambda: leader.reported_check[:2] == ("web", True) and not leader.pod.state()["note"],
    )


def test_a_check_that_fails_everywhere_takes_no_vip(checked_pods: list[CheckedPod]) -> None:
    """LowerPriority moves it to a healthy node while there is one, and then back."""
    for each in checked_pods:
        each.runs(http("LowerPriority"))
    leader, other = leader_and_backup(checked_pods)
    leader.answers(500)
    other.pod.wait_until("the other node has the VIP", lambda: other.is_master and not leader.is_master)
    other.answers(500)
    leader.pod.wait_until("the first node has the VIP again", lambda: leader.is_master and not other.is_master)
    for each in checked_pods:
        each.pod.wait_until("it reports the check", lambda: each.reported_check[:2] == ("web", False))  # noqa: B023 - called in the same pass


def test_a_pod_that_starts_with_a_failing_service_takes_no_vip(checked_pods: list[CheckedPod]) -> None:
    """The first result is written before keepalived starts. The node gets the VIP once the service is healthy."""
    checked = checked_pods[0]
    checked.answers(503)
    text = checked.mounts(http("Fault"))
    checked.pod.prepare()
    checked.pod.start_keepalived()
    log_file = checked.pod.keepalived_log
    checked.pod.wait_until("keepalived is in FAULT without an agent", lambda: "FAULT" in log_file.read_text())
    checked.pod.start_agent()
    checked.pod.runs(mounts.hash_of(text))
    checked.pod.wait_until("the agent reports the state of the instance", lambda: checked.pod.role(WEB) != "")
    assert checked.pod.role(WEB) == "FAULT"
    assert [*checked.changes] == [0, 0]
    checked.answers(200)
    checked.pod.wait_until("it is master", lambda: checked.is_master)
    checked.pod.kill_agent()
    checked.answers(503)
    checked.pod.start_agent()
    checked.pod.wait_until("a new agent sees it", lambda: checked.pod.role(WEB) == "FAULT")
    checked.pod.kill_agent()
    checked.pod.start_agent()
    checked.pod.runs(mounts.hash_of(text))
    checked.pod.wait_until("the agent reports the state of the instance", lambda: checked.pod.role(WEB) != "")
    assert checked.pod.role(WEB) == "FAULT"
    assert checked.changes[0] == 1  # keepalived's second counter misses a change during a reload
