"""``kavip import metallb --hand-over`` on a real cluster, with MetalLB's own controller and speakers, under load."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from hack.demo.__main__ import image
from hack.demo.session import Session
from hack.testbed import programs as building
from hack.testbed.cluster import Cluster
from hack.testbed.metallb import CLASS, SYSTEM
from hack.testbed.place import Result
from hack.testbed.process import wait_for
from hack.testbed.programs import Programs
from kavip import names
from tests.app.conftest import object_of
from tests.cluster.migration.load import Load, load
from tests.cluster.migration.metallb import MetalLB, running
from tests.cluster.migration.whohas import Owners, watch_owners
from tests.cluster.provisioning import PATIENCE, WEB_LABELS, apply_objects, retry_kubectl
from tests.cluster.site import site
from tests.support.manifests import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.migration, pytest.mark.timeout(1800)]

INTERVAL = 0.2
"""Seconds between two adverts of the group: the default of a new one."""
BOUND = 4 * INTERVAL + 1.0
EVERY = 0.1
"""Seconds between two requests to one VIP."""
POOL = "192.0.2.192/28"
PAGE = ROOT / "docs" / "howto" / "from-metallb.md"


@pytest.fixture(scope="module")
def others() -> Programs:
    """The programs of other load balancers."""
    return building.ensure(building.MIGRATION)


@pytest.fixture
def session(cluster: Callable[..., Cluster]) -> Iterator[Session]:
    """Three nodes with a pod each, and kavip without a group and a pool."""
    with site(cluster(nodes=3, images=(image(),))) as found:
        yield found


def service(name: str, **spec: Any) -> dict[str, Any]:
    """A LoadBalancer Service before the pods."""
    notes = spec.pop("annotations", {})
    ports = [{"port": spec.pop("port", 80), "targetPort": 80}]
    given = {"type": "LoadBalancer", "ports": ports, "selector": WEB_LABELS, **spec}
    return object_of("Service", name, namespace="shop", annotations=notes, spec=given)


SHARED = {"metallb.io/allow-shared-ip": "pair", "metallb.io/loadBalancerIPs": "192.0.2.200"}
SERVICES = (
    service("web"),
    service("plain", allocateLoadBalancerNodePorts=False),
    service("local", externalTrafficPolicy="Local"),
    service("one", annotations=SHARED),
    service("two", annotations=SHARED, port=81),
)


def stored(session: Session) -> dict[str, Any]:
    """What must stay of each Service: addresses and node ports."""
    found = {}
    for each in session.get("services", "-n", "shop")["items"]:
        ports = [port.get("nodePort") for port in each["spec"]["ports"]]
        addresses = [entry["ip"] for entry in each["status"]["loadBalancer"].get("ingress", ())]
        found[each["metadata"]["name"]] = addresses, ports
    return found


def serve_all(session: Session, metallb: MetalLB, *services: dict[str, Any]) -> list[str]:
    """Give MetalLB a pool and apply *services*; wait until each answers; return the addresses."""
    metallb.configure(POOL, interfaces=["eth0"])
    apply_objects(session.cluster, *services)

    def addresses() -> list[str]:
        found = [each[0] for each in stored(session).values()]
        return sorted({each for one in found for each in one}) if all(found) else []

    wait_for("MetalLB assigns all addresses", lambda: bool(addresses()), timeout=PATIENCE, interval=1)
    vips = [each for each in addresses() if ":" not in each]
    for vip in vips:
        wait_for(f"{vip} answers", partial(answers, session, vip), timeout=PATIENCE, interval=1)
    return vips


def answers(session: Session, vip: str) -> bool:
    """Whether a client gets twenty answers in sequence."""
    return all(session.answers(vip) for _ in range(20))


def prepare(session: Session) -> None:
    """Apply what the import prints, close MetalLB's pool, and wait until the pods of the group run."""
    printed = session.kavip("import", "metallb")
    assert printed.stderr == ""
    session.cluster.kubectl("apply", "--filename=-", input=printed.stdout)
    closed = ("patch", "ipaddresspool", "first", f"--namespace={SYSTEM}", "--type=merge")
    retry_kubectl(session.cluster, *closed, '--patch={"spec":{"autoAssign":false}}')
    rollout = ("rollout", "status", "daemonset/l2", "--namespace=lb", "--timeout=100s")
    retry_kubectl(session.cluster, *rollout)
    ready = ("wait", "keepalivedgroup/l2", "--namespace=lb", "--for=condition=Ready", "--timeout=100s")
    retry_kubectl(session.cluster, *ready)


def check_arrived(session: Session, before: dict[str, Any]) -> None:
    """Every Service is kavip's, with the addresses and node ports that it had."""
    assert stored(session) == before
    for each in session.get("services", "-n", "shop")["items"]:
        assert each["spec"]["loadBalancerClass"] == names.LOAD_BALANCER_CLASS
        assert "externalIPs" not in each["spec"]
        assert names.HAND_OVER_ANNOTATION not in each["metadata"]["annotations"]
        condition = session.condition("service", f"shop/{each['metadata']['name']}", "kavip.io/AddressAssigned")
        assert condition[:2] == ("True", "Assigned")


def check_holders(session: Session, vips: list[str]) -> None:
    """The node of kavip that holds each VIP answers for it, and no other."""
    with watch_owners(session.cluster, vips) as owners:
        assert all(answers(session, vip) for vip in vips)
    for vip in vips:
        node = session.holder(vip)
        shown = json.loads(node.exec("ip", "-json", "link", "show", "dev", "eth0").stdout)
        assert owners.last(vip, seconds=60) == {shown[0]["address"]}


def hand_over(session: Session, vips: list[str], *, finish: Callable[[], None]) -> tuple[Result, Owners, Load]:
    """Hand all Services over under load, then *finish*, until MetalLB announces nothing."""
    with (
        watch_owners(session.cluster, vips, every=0.05) as owners,
        load(session.cluster, vips, every=EVERY) as seen,
    ):
        done = session.kavip("import", "metallb", "--hand-over", "--timeout=45")
        finish()
        wait_for("MetalLB announces nothing", lambda: not statuses(session), timeout=PATIENCE, interval=0.5)
    session.figure("requests during the hand-over", f"{seen.requests}, lost {seen.problems}")
    session.figure("longest time without an ARP answer", f"{ {vip: round(owners.gap(vip), 2) for vip in vips} }")
    return done, owners, seen


def check_way_back(session: Session, before: dict[str, Any]) -> None:
    """The commands of the page give shop/web back to MetalLB with its address, though MetalLB's pool is closed."""
    (address,) = before["web"][0]
    (block,) = re.findall(r"\n## Go back\n.*?```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for line in re.sub(r"192\.0\.2\.\d+", address, block.replace("\\\n", "")).splitlines():
        retry_kubectl(session.cluster, *shlex.split(line)[1:])
    wait_for("MetalLB announces web", lambda: statuses(session) == ["web"], timeout=PATIENCE, interval=0.5)
    wait_for("web answers", partial(answers, session, address), timeout=PATIENCE, interval=1)
    assert stored(session) == before
    (web,) = (each for each in session.get("services", "-n", "shop")["items"] if each["metadata"]["name"] == "web")
    assert "loadBalancerClass" not in web["spec"]
    assert not {names.GROUP_ANNOTATION, names.ADDRESSES_ANNOTATION} & web["metadata"]["annotations"].keys()


def check_only_open_connections_were_cut(seen: Load, vip: str, *, moves: int) -> None:
    """What is open when the VIP moves from a node of MetalLB to one of kavip is cut; nothing else is lost."""
    rows, problems = seen.rows[f"http://{vip}/"], seen.problems.get(f"http://{vip}/", Counter[str]())
    under_way = 1 + int(max(took for _, took, _ in rows if took is not None) / EVERY)
    assert set(problems) <= {"ECONNRESET"} and problems.total() <= moves * under_way, (vip, problems, under_way)


def statuses(session: Session) -> list[str]:
    """The Services that MetalLB's speakers announce."""
    found = session.get("servicel2statuses", "-n", SYSTEM)["items"]
    return [each["status"]["serviceName"] for each in found]


def test_services_without_a_class_are_handed_over(session: Session, others: Programs) -> None:
    """kavip announces each address before MetalLB withdraws it, only open connections are cut, and one goes back."""
    with running(MetalLB(session.cluster, others)) as metallb:
        vips = serve_all(session, metallb, *SERVICES)
        before = stored(session)
        prepare(session)
        done, owners, seen = hand_over(session, vips, finish=lambda: None)
        assert (done.returncode, done.stderr) == (0, "")
        check_arrived(session, before)
        for vip in vips:
            sharers = sum(vip in addresses for addresses, _ in before.values())
            check_only_open_connections_were_cut(seen, vip, moves=sharers)
            assert owners.gap(vip) <= BOUND
        check_holders(session, vips)
        check_way_back(session, before)


def test_services_of_a_class_are_handed_over(session: Session, others: Programs) -> None:
    """MetalLB's speakers do not withdraw a Service that has lost their class; they do when they restart."""
    with running(MetalLB(session.cluster, others, lb_class=CLASS)) as metallb:
        vips = serve_all(session, metallb, *(service(name, loadBalancerClass=CLASS) for name in ("web", "plain")))
        before = stored(session)
        prepare(session)
        done, owners, seen = hand_over(session, vips, finish=metallb.restart)
        assert done.returncode == 0
        assert "kubectl rollout restart daemonset" in done.stderr
        check_arrived(session, before)
        for vip in vips:
            # both announce until MetalLB's speakers restart, so a client may go back once, and come again
            check_only_open_connections_were_cut(seen, vip, moves=3)
            assert owners.gap(vip) <= BOUND
        check_holders(session, vips)
