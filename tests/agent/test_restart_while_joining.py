"""An agent ends before it knows whether the others accept the password of its pod, beside a real keepalived."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kavip.agent.keepalived.rundir import GOOD, JOINING, RunDirectory
from kavip.api.agent import ProblemCode
from kavip.reconcile.rollout.configmap import secret_folder
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod
from tests.agent.podstates import WEB, WEB_VIP, master, started

SLOW: dict[str, Any] = {**mounts.WITH_PASSWORD, "advert_interval_milliseconds": 2000}  # so that listening takes time
TEXT = mounts.rendered({WEB: WEB_VIP}, **SLOW)
META: dict[str, Any] = {"authentication": True, "password": f"{secret_folder('vrrp')}/password"}


def with_password(pod: Pod, password: str) -> Pod:
    """*pod*, with this *password* in its Secret."""
    pod.mount_password("vrrp", password=password)
    return pod


def uses_the_password(pod: Pod) -> bool:
    """Whether the keepalived of *pod* has run a configuration with a password."""
    good = pod.run_dir / GOOD
    return good.exists() and "authentication" in good.read_text()


def has_decided(pod: Pod) -> bool:
    """Whether the agent of *pod* listens no more."""
    return not (pod.run_dir / JOINING).exists()


@pytest.mark.netns
def test_the_next_agent_holds_the_pod_back(pod: MakePod) -> None:
    """The pod has used the password for a moment, which proves nothing: it would become a second master."""
    first = master(started(with_password(pod("n1"), "previous"), TEXT, **META), WEB)
    second = with_password(pod("n2"), "mounted")
    second.config.write(TEXT, **META)
    second.start()
    second.wait_until("keepalived runs", lambda: uses_the_password(second))
    second.kill_agent()
    second.start_agent()
    refused = ProblemCode.PASSWORD_NOT_ACCEPTED
    second.wait_until("it is held back", lambda: second.state().get("refusedCode") == refused)
    assert WEB_VIP not in second.addresses()
    master(first, WEB)


@pytest.mark.netns
@pytest.mark.parametrize("others", [0, 1])
def test_a_password_that_is_used_is_recorded(pod: MakePod, others: int) -> None:
    """The next agent of the pod does not listen again: it was accepted, or no node was there to reject it."""
    for number in range(others):
        master(started(with_password(pod(f"n{number + 2}"), "same"), TEXT, **META), WEB)
    joining = with_password(pod("n1"), "same")
    joining.config.write(TEXT, **META)
    joining.prepare()
    assert not has_decided(joining)
    joining.start_keepalived()
    joining.start_agent()
    joining.wait_until("it has decided", partial(has_decided, joining))


def test_the_record_outlives_the_agent(tmp_path: Path) -> None:
    """It may be written and removed again."""
    files = RunDirectory(tmp_path)
    assert not files.is_joining()
    for is_joining in (True, True, False, False):
        files.record_joining(is_joining)
        assert RunDirectory(tmp_path).is_joining() == is_joining
