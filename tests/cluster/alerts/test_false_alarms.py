"""What administrators do every day fires no alert on a real cluster."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hack.alertrules import RULES
from hack.demo.session import Session
from tests.cluster.alerts.breaking import drained
from tests.cluster.alerts.scaling import scaled
from tests.cluster.alerts.shop import wait_until_served
from tests.cluster.alerts.watching import watching
from tests.cluster.provisioning import release, retry_kubectl
from tests.support import manifests

pytestmark = [pytest.mark.cluster, pytest.mark.alerts, pytest.mark.timeout(1800)]


def roll_controllers(session: Session) -> None:
    """Restart all replicas of kavip."""
    for name in ("kavip-controller", "kavip-webhook"):
        restart(session, f"deployment/{name}", manifests.NAMESPACE)


def roll_agents(session: Session) -> None:
    """Restart all pods of the group."""
    restart(session, "daemonset/edge", "lb")


def restart(session: Session, what: str, namespace: str) -> None:
    """Restart the pods of *what*, and wait until the new ones are ready."""
    retry_kubectl(session.cluster, "rollout", "restart", what, f"--namespace={namespace}")
    status = ("rollout", "status", what, f"--namespace={namespace}", "--timeout=100s")
    retry_kubectl(session.cluster, *status)


def upgrade(session: Session) -> None:
    """Upgrade to another level of the log."""
    session.cluster.helm("upgrade", *release(session.cluster), "--reuse-values", "--set=logLevel=debug")


def drain(session: Session) -> None:
    """Drain a node, and end that."""
    with drained(session, "n1"):
        pass


@pytest.mark.parametrize("drill", [roll_controllers, roll_agents, upgrade, drain])
def test_normal_operation_fires_nothing(session: Session, drill: Callable[[Session], None], tmp_path: Path) -> None:
    """With three times less patience than the rules have, nothing fires until everything is as before."""
    wait_until_served(session)
    rules = scaled(yaml.safe_load(RULES.read_text()), by=3, least=1)
    with watching(session.cluster, tmp_path, rules) as prometheus:
        prometheus.wait_until("no alert is active", lambda: not prometheus.alerts())
        began = time.time()
        drill(session)
        wait_until_served(session)
        prometheus.wait_until("no alert is active any more", lambda: not prometheus.alerts())
        assert [str(each) for each in prometheus.fired(began)] == []
    session.figure("no alert", drill.__doc__ or "")
