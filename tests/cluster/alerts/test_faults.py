"""
Each alert on a real cluster: one thing is broken, its alert fires, and ends after the mend.

With ``-s`` it prints the table of what was seen.
"""

import time
from collections.abc import Iterator

import pytest
import yaml

from hack.alertrules import RULES
from hack.demo.session import Session
from tests.cluster.alerts.faults import FAULTS, Fault
from tests.cluster.alerts.scaling import scaled
from tests.cluster.alerts.shop import wait_until_served
from tests.cluster.alerts.watching import watching
from tests.cluster.prometheus import Alert, Prometheus

pytestmark = [pytest.mark.cluster, pytest.mark.alerts, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def prometheus(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It evaluates the rules with times that are 60 times shorter, but longer than a fail-over takes."""
    rules = scaled(yaml.safe_load(RULES.read_text()), by=60, least=10)
    with watching(session.cluster, tmp_path_factory.mktemp("prometheus"), rules) as found:
        yield found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.alert)
def test_each_fault_fires_its_alert_until_it_is_mended(session: Session, prometheus: Prometheus, fault: Fault) -> None:
    """Its alert fires with its labels, with it at most the consequences of its row, and all end after the mend."""
    wait_until_served(session)
    prometheus.wait_until("no alert is active", lambda: not prometheus.alerts())
    began = time.time()

    def found() -> list[Alert]:
        return [each for each in prometheus.alerts() if each.fires and fault.is_own(each)]

    with fault.breaks(session):
        prometheus.wait_until(f"{fault.alert} fires", lambda: bool(found()))
        fired = found()
    prometheus.wait_until("every alert has ended", lambda: not prometheus.alerts())
    others = [each for each in prometheus.fired(began) if not fault.is_own(each)]
    assert [str(each) for each in others if each.name not in fault.consequences] == []
    further = "".join(f", with it {name}" for name in sorted({each.name for each in others}))
    session.figure(fault.alert, f"{fault.what}: fired as {fired[0]}{further}; ended after the mend")
