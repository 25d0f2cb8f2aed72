"""
A change of topology on a real cluster: no admission call is lost, VIPs answer, and the lease is handed over.

The old Deployments are kept until the new ones are ready, as docs/howto/install.md describes.
"""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from hack import topology
from hack.demo.__main__ import image
from hack.demo.session import AGENT_PORT, Session
from hack.endurance import disturb, endurancerun
from hack.endurance.endurancerun import Run
from hack.endurance.writer import NAMESPACE
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names
from tests.app.conftest import a_group, a_pool, a_service
from tests.cluster.provisioning import (
    OWN,
    PATIENCE,
    WEB_LABELS,
    apply_objects,
    chart,
    create_namespaces,
    delete_objects,
    release,
    web_deployment,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

RATE = 5.0  # writes a second
SILENCE = 2.0  # seconds by which a VIP may be silent longer than the node's own address on a busy machine


@pytest.fixture
def session(cluster: Callable[..., Cluster]) -> Iterator[Session]:
    """Two nodes, kavip in two Deployments, a VIP, and the objects of the writer."""
    found = Session(cluster(nodes=2, images=(image(),)))
    chosen = {names.GROUP_ANNOTATION: "lb/edge", names.POOL_ANNOTATION: "topology"}
    service = a_service("web", annotations=chosen, selector=WEB_LABELS)
    with pytest.MonkeyPatch.context() as patched:
        for module in (disturb, endurancerun):
            patched.setattr(module, "CHART", chart(found.cluster))
        endurancerun.install(found.cluster, "--set=topology=split")
        create_namespaces(found.cluster, "lb", "shop", NAMESPACE)
        endurancerun.prepare(found.cluster)
        apply_objects(
            found.cluster,
            web_deployment(replicas=2),
            a_pool("topology", "192.0.2.208/29"),
            a_group("edge", metricsPort=AGENT_PORT),
            service,
        )
        try:
            yield found
        finally:
            endurancerun.install(found.cluster)
            gone = ("namespace", "lb", "shop", NAMESPACE, "--wait=false")
            services = (("services", "--all", f"--namespace={each}") for each in ("shop", NAMESPACE))
            delete_objects(found.cluster, *services, gone, ("vippool", "topology", NAMESPACE))


def test_no_call_is_lost_and_vips_stay(session: Session) -> None:
    """The API server gets an answer to each call while one topology follows the other, also by a rollback."""
    wait_for("the group serves the VIP", partial(serves, session), timeout=PATIENCE, interval=0.5)
    run = Run(session.cluster)
    changes = (
        ("to combined", topology.SPLIT, partial(upgrade, "combined"), "kavip"),
        ("to split", topology.COMBINED, partial(upgrade, "split"), "kavip-controller"),
        ("back to combined", topology.SPLIT, rollback, "kavip"),
        ("back to split", topology.COMBINED, rollback, "kavip-controller"),
    )
    with (
        run.writing(rate=RATE),
        session.measure_outage(session.address("shop/web")) as outage,
        session.measure_outage(node_port(session)) as control,
    ):
        for name, old, helm, account in changes:
            run.run_disturbance(name, partial(change, old, helm))
            wait_for(f"{name}: a new pod leads", partial(leads, session, account), timeout=PATIENCE)
    print(run.table(), outage, control, sep="\n")  # noqa: T201 - shown when the test fails
    assert not run.record.wrong, run.table()
    assert (run.counters.lost, run.counters.fail_open) == (0, 0), run.table()
    assert len(run.record.writes) > 100
    assert not outage.moved, str(outage)
    assert outage.silence < control.silence + SILENCE, f"{outage}; the node itself: {control}"


def change(old: tuple[str, ...], helm: Callable[[Cluster], object], cluster: Cluster) -> None:
    """Run helm, and delete the *old* Deployments."""
    topology.change(cluster, old, partial(helm, cluster))


def upgrade(name: str, cluster: Cluster) -> None:
    """`helm upgrade` to the topology *name*."""
    cluster.helm("upgrade", *release(cluster), "--reuse-values", f"--set=topology={name}")


def rollback(cluster: Cluster) -> None:
    """`helm rollback` to the release before."""
    cluster.helm("rollback", "kavip", OWN, "--wait=watcher")


def serves(session: Session) -> bool:
    """Whether both nodes run the group's configuration, and the VIP answers."""
    kinds = ("Programmed", "Ready")
    is_run = all(session.condition("keepalivedgroup", "lb/edge", kind)[0] == "True" for kind in kinds)
    address = session.address("shop/web")
    return is_run and len(list(filter(session.state, session.cluster.nodes))) == 2 and bool(session.answers(address))


def node_port(session: Session) -> str:
    """Where the pods of the Service answer at the address of a node, without kavip."""
    path = "--output=jsonpath={.spec.ports[0].nodePort}"
    port = session.cluster.kubectl("get", "service", "web", "--namespace=shop", path).stdout
    return f"{session.cluster.nodes[0].ipv4}:{port}"


def leads(session: Session, account: str) -> bool:
    """Whether the holder of the Lease is a pod of that account that does not end."""
    holder = "--output=jsonpath={.spec.holderIdentity}"
    name = session.cluster.kubectl("get", "lease", names.LEASE_NAME, OWN, holder).stdout
    path = "--output=jsonpath={.spec.serviceAccountName}{.metadata.deletionTimestamp}"
    return session.cluster.kubectl("get", "pod", name or "none", OWN, path, check=False).stdout == account
