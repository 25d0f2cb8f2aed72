"""Lists of VIPs that agents report by hash, on a real cluster: the leader has the same as if they sent the lists."""

from collections.abc import Callable, Iterator

import pytest

from hack.demo.__main__ import image
from hack.demo.session import Session
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names
from kavip.api.agent import LONG_LIST, VIPS_BY_HASH, AgentState, decode_state
from tests.app.conftest import a_group, a_pool, a_service
from tests.cluster.provisioning import PATIENCE, apply_objects, create_namespaces, release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

COUNT = 3 * LONG_LIST
KINDS = ("kavip.io/Programmed", "kavip.io/Advertised")


@pytest.fixture
def session(cluster: Callable[..., Cluster]) -> Iterator[Session]:
    """Two nodes with kavip, and a group with one instance for all Services."""
    found = Session(cluster(nodes=2, images=(image(),)))
    found.cluster.helm(
        "upgrade", "--install", *release(found.cluster), "--create-namespace", "--set=image.pullPolicy=Never"
    )
    create_namespaces(found.cluster, "lb", "shop")
    group = a_group("crowd", instances={"mode": "Shared", "count": 1})
    apply_objects(found.cluster, a_pool("crowd", "198.18.0.0/23"), group)
    yield found


def state(session: Session, node: str) -> AgentState:
    """What the agent on *node* reports to the leader."""
    (host,) = (each for each in session.cluster.nodes if each.name == node)
    url = f"http://{host.ipv4}:{names.AGENT_PORT}{names.STATE_PATH}"
    command = ("curl", "--silent", "--fail", "--max-time", "5", "--header", f"Prefer: {VIPS_BY_HASH}", url)
    found = session.cluster.control.exec(*command, check=False).stdout
    return decode_state(found.encode()) if found else AgentState(group="")


def served(session: Session) -> int:
    """The number of Services with both conditions."""
    found = 0
    for service in session.get("services", "--namespace=shop")["items"]:
        conditions = service.get("status", {}).get("conditions", ())
        found += {each["type"] for each in conditions if each["status"] == "True"}.issuperset(KINDS)
    return found


def test_all_services_of_a_long_list_are_served(session: Session) -> None:
    """Also one that comes later, and after one has gone."""
    services = [
        a_service(f"s{number:03}", annotations={names.GROUP_ANNOTATION: "lb/crowd"}) for number in range(COUNT + 1)
    ]
    apply_objects(session.cluster, *services[:COUNT])
    wait_for(f"{COUNT} Services are served", lambda: served(session) == COUNT, timeout=PATIENCE, interval=2)
    nodes = [each.name for each in session.cluster.nodes]
    reports = [state(session, node).instances for node in nodes]
    assert {(each.virtual_ips, bool(each.virtual_ips_hash)) for (each,) in reports} == {((), True)}
    assert len({each.virtual_ips_hash for (each,) in reports}) == 1

    apply_objects(session.cluster, services[COUNT])
    session.cluster.kubectl("delete", "service", "s000", "--namespace=shop")
    before = {each.virtual_ips_hash for (each,) in reports}

    def have_changed() -> bool:
        found = {each.virtual_ips_hash for node in nodes for each in state(session, node).instances}
        return len(found) == 1 and found.isdisjoint(before)

    wait_for("both nodes run the new list", have_changed, timeout=PATIENCE)
    wait_for(f"{COUNT} Services are served", lambda: served(session) == COUNT, timeout=PATIENCE, interval=2)
