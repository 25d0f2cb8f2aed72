"""Everything that a controller reports: Events on each change and none without, metrics, and printer columns."""

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from tests.app.conftest import Installation, Replica, a_group, a_pool, a_service, object_of, wait_for

pytestmark = pytest.mark.apiserver

GROUP = "; group lb/edge by default"
FULL = "pool edge is full: 2 of 2 assigned"
REMEDY = "free an address or enlarge the pool"
ADDRESSES = "kavip.io/addresses"


class Cluster:
    """An installation with one controller, and its Events."""

    def __init__(self, plane: ControlPlane) -> None:
        """Two addresses for three Services."""
        self.installation = Installation(plane)
        self.replica: Replica = self.installation.start(webhook=False)
        self.installation.apply(
            a_pool("edge", "192.0.2.128/31"), a_group("edge", default=True, nodeSelector={"a": "b"})
        )
        wait_for("kavip has observed the pool", lambda: self.pool("Ready") == "Ready")
        for name in ("s0", "s1"):
            self.installation.apply(a_service(name))
            wait_for(f"{name} has an address", partial(self.installation.addresses, name))
        self.installation.apply(a_service("young"))
        self.until("young", "PoolExhausted")

    def pool(self, kind: str, name: str = "edge") -> str:
        """The reason of a condition of the pool."""
        found = (self.installation.get("vippool", name) or {}).get("status", {}).get("conditions", [])
        return next((str(each["reason"]) for each in found if each["type"] == kind), "")

    def until(self, name: str, reason: str, message: str = "") -> None:
        """Wait for the condition of a Service."""

        def is_so() -> bool:
            found = self.installation.condition(name)
            return found.get("reason") == reason and message in found.get("message", "")

        wait_for(f"{name}: {reason} {message}", is_so)

    def edit(self, kind: str, name: str, patch: dict[str, Any], *flags: str) -> None:
        """Run ``kubectl patch``."""
        place = ("-n", "shop") if kind == "service" else ()
        self.installation.plane.kubectl("patch", kind, name, *place, "--type=merge", "-p", json.dumps(patch), *flags)

    def request(self, name: str, address: str | None) -> None:
        """Let the Service request *address*."""
        self.edit("service", name, {"metadata": {"annotations": {ADDRESSES: address}}})

    def uid(self, name: str) -> str:
        """The uid of the pool or Service: objects of other tests have the same names."""
        subject = ("vippool", name) if name == "edge" else ("service", name, "-n", "shop")
        return str((self.installation.get(*subject) or {}).get("metadata", {}).get("uid", ""))

    def events(self, name: str) -> Counter[str]:
        """The counts of Events about the address of the Service or pool, by note."""
        found = self.installation.get("events.v1.events.k8s.io", "-A") or {"items": []}
        notes: Counter[str] = Counter()
        uid = self.uid(name)
        for item in found["items"]:
            about = item["regarding"]
            is_ours = (item["reportingController"], about.get("uid")) == ("kavip.io/controller", uid)
            if is_ours and item["reason"] not in ("Pending", "NoNodes"):
                notes[item["note"]] += (item.get("series") or {}).get("count", 1)
        return notes

    def wait_event(self, name: str, note: str) -> None:
        """Wait for an Event about the Service or pool."""
        wait_for(f"{name} has the Event {note}", lambda: self.events(name)[note])

    def all_events(self) -> dict[str, Counter[str]]:
        """The Events about all objects of the test, once there are no more new ones."""

        def now() -> dict[str, Counter[str]]:
            return {name: self.events(name) for name in ("s0", "s1", "young", "edge")}

        before = now()
        while True:
            time.sleep(1.0)
            if (after := now()) == before:
                return after
            before = after

    def wait_idle(self) -> None:
        """Wait until the controller has been idle for a while."""
        quiet = 0
        while quiet < 10:
            before = self.metrics("kavip_reconcile_total")
            time.sleep(0.2)
            idle = self.metrics("kavip_workqueue_depth") == {"": 0.0}
            quiet = quiet + 1 if idle and self.metrics("kavip_reconcile_total") == before else 0

    def metrics(self, name: str) -> dict[str, float]:
        """The values of the metric *name* by label set, as /metrics prints them."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.replica.metrics_port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found = (line.rpartition(" ") for line in lines if line.startswith((f"{name}{{", f"{name} ")))
        return {labels.removeprefix(name): float(value) for labels, _, value in found}


@pytest.fixture
def cluster(prepared: ControlPlane) -> Iterator[Cluster]:
    """A new cluster."""
    made = Cluster(prepared)
    try:
        yield made
    finally:
        made.installation.close()


def test_each_change_is_reported_once(cluster: Cluster) -> None:
    """The life of a pool and three Services in chapters: Events, metrics, and the output of kubectl."""
    assigned_and_waiting(cluster)
    metrics_follow(cluster)
    unrelated_changes_cause_no_reconcile(cluster)
    a_lost_address_is_reported_with_its_holder(cluster)
    a_request_for_an_address_in_use_is_reported(cluster)
    a_move_is_reported_with_both_addresses(cluster)
    a_restart_reports_nothing(cluster)
    kubectl_prints_the_pools(cluster)


def assigned_and_waiting(cluster: Cluster) -> None:
    """One Event for each; edits that change no address, and messages that change alone, give none."""
    full = "full: 2 of 2 assigned; free an address or add some to spec.addresses"
    cluster.wait_event("young", f"{FULL}; {REMEDY}")
    cluster.wait_event("edge", full)
    cluster.wait_event("s0", f"192.0.2.128 from pool edge{GROUP}")
    assert cluster.events("s0") == {f"192.0.2.128 from pool edge{GROUP}": 1}
    assert cluster.installation.condition("young")["message"] == f"{FULL}; {REMEDY}"
    selective = a_pool("lab", "198.51.100.0/24", namespaceSelector={"matchLabels": {"env": "prod"}})
    cluster.installation.apply(selective)
    room = "pool lab has room but cannot serve namespace shop (namespaceSelector)"
    cluster.until("young", "PoolExhausted", room)
    cluster.edit("service", "young", {"metadata": {"labels": {"a": "b"}}})
    notes = cluster.all_events()
    assert notes["young"] == {f"{FULL}; {REMEDY}": 1}
    assert notes["edge"] == {full: 1}


def metrics_follow(cluster: Cluster) -> None:
    """Pools by state, waiting Services by pool and reason, allocations; a deleted pool has no line."""

    def of(pool: str) -> dict[str, float]:
        found = cluster.metrics("kavip_pool_addresses")
        states = ("total", "assigned", "available", "cooling")
        return {s: found[key] for s in states if (key := f'{{family="ipv4",pool="{pool}",state="{s}"}}') in found}

    assert of("edge") == {"total": 2, "assigned": 2, "available": 0, "cooling": 0}
    assert of("lab")["available"] == 256
    assert cluster.metrics("kavip_services_waiting") == {'{pool="edge",reason="PoolExhausted"}': 1}
    assert cluster.metrics("kavip_allocation_seconds_count")[""] == 2
    assert cluster.metrics("kavip_address_conflicts_total")['{reason="TwoServices"}'] == 0
    cluster.installation.plane.kubectl("delete", "vippool", "lab")
    wait_for("the pool has no metrics", lambda: not of("lab"))
    cluster.until("young", "PoolExhausted", f"{FULL}; {REMEDY}")


def unrelated_changes_cause_no_reconcile(cluster: Cluster) -> None:
    """Heartbeats, counts of pools, labels of other pools and Services reconcile no holder and no waiting Service."""

    def reconciles() -> float:
        found = cluster.metrics("kavip_reconcile_total")
        return sum(number for labels, number in found.items() if 'kind="service"' in labels)

    cluster.installation.apply(object_of("Node", "n1"), a_pool("lab", "198.51.100.0/24", autoAssign=False))
    wait_for("the pool is looked at", lambda: cluster.pool("Ready", "lab") == "Ready")
    cluster.wait_idle()
    before = reconciles()
    for second in range(3):
        beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:0{second}Z"}
        cluster.edit("node", "n1", {"status": {"conditions": [beat]}}, "--subresource=status")
    cluster.edit("vippool", "lab", {"metadata": {"labels": {"a": "b"}}})
    cluster.edit("vippool", "lab", {"status": {"ipv4": {"assigned": 9}}}, "--subresource=status")
    wait_for(
        "the count is put right", lambda: cluster.installation.get("vippool", "lab")["status"]["ipv4"]["assigned"] == 0
    )
    cluster.installation.apply(object_of("Service", "inner", namespace="other", spec={"ports": [{"port": 80}]}))
    cluster.installation.plane.kubectl("delete", "service", "inner", "-n", "other")
    cluster.wait_idle()
    assert reconciles() == before
    cluster.installation.plane.kubectl("delete", "vippool", "lab")
    wait_for("waiting Services are reconciled", lambda: reconciles() > before)


def a_lost_address_is_reported_with_its_holder(cluster: Cluster) -> None:
    """
    Another writer puts an address into a second status: the older Service keeps it, the other one reports the holder.
    """
    ingress = [{"ip": "192.0.2.129", "ipMode": "VIP"}]
    cluster.edit("service", "young", {"status": {"loadBalancer": {"ingress": ingress}}}, "--subresource=status")
    lost = f"{FULL}; {REMEDY} (was 192.0.2.129; 192.0.2.129 belongs to Service shop/s1, which is older)"
    cluster.wait_event("young", lost)
    wait_for("it is taken back", lambda: not cluster.installation.addresses("young"))
    assert cluster.metrics("kavip_address_conflicts_total")['{reason="TwoServices"}'] == 1
    assert cluster.installation.addresses("s1") == ["192.0.2.129"]


def a_request_for_an_address_in_use_is_reported(cluster: Cluster) -> None:
    """With the name of the Service that does not get it."""
    cluster.request("young", "192.0.2.129")
    cluster.until("young", "AddressInUse", "is used by Service shop/s1")
    assert cluster.metrics("kavip_services_waiting") == {'{pool="edge",reason="AddressInUse"}': 1}
    cluster.request("young", None)
    cluster.until("young", "PoolExhausted")


def a_move_is_reported_with_both_addresses(cluster: Cluster) -> None:
    """The reason stays and the address changes; a stranded address is reported too."""
    cluster.edit("vippool", "edge", {"spec": {"addresses": ["192.0.2.128/29"]}})
    cluster.until("young", "Assigned")
    cluster.request("s0", "192.0.2.135")
    moved = f"192.0.2.135 from pool edge{GROUP} (was 192.0.2.128)"
    cluster.wait_event("s0", moved)
    cluster.edit("vippool", "edge", {"spec": {"exclude": ["192.0.2.129"]}})
    cluster.until("s1", "Stranded", "192.0.2.129 is excluded from pool edge")
    cluster.wait_event("s1", cluster.installation.condition("s1")["message"])
    cluster.wait_event("edge", "IPv4 addresses are free")
    cluster.wait_event("young", f"192.0.2.130 from pool edge{GROUP}")
    notes = cluster.all_events()
    assert notes["young"][f"192.0.2.130 from pool edge{GROUP}"] == 1
    assert notes["s0"] == {f"192.0.2.128 from pool edge{GROUP}": 1, moved: 1}
    assert sorted(notes["s1"].values()) == [1, 1]
    assert notes["edge"]["IPv4 addresses are free"] == 1
    assert cluster.metrics("kavip_services_waiting") == {}


def a_restart_reports_nothing(cluster: Cluster) -> None:
    """Nothing has changed."""
    notes = cluster.all_events()
    assert cluster.replica.stop() == 0
    cluster.replica = cluster.installation.start(webhook=False)
    wait_for("it leads", lambda: cluster.metrics("kavip_leader")[""] == 1)
    assert cluster.all_events() == notes
    assert cluster.metrics("kavip_allocation_seconds_count")[""] == 0


def kubectl_prints_the_pools(cluster: Cluster) -> None:
    """Addresses, usage and problems; -o wide has the totals; the older of two overlapping pools stays in force."""
    cluster.installation.apply(a_pool("twin", "192.0.2.130/32", "2001:db8::/64"))
    wait_for("the pool reports the overlap", lambda: cluster.pool("Accepted", "twin") == "Overlap")
    counts = {"total": 7, "assigned": 2, "available": 5}
    wait_for("edge is counted", lambda: cluster.installation.get("vippool", "edge")["status"]["ipv4"] == counts)
    lines = cluster.installation.plane.kubectl("get", "vipp").stdout.splitlines()
    assert " ".join(lines[0].split()) == "NAME ADDRESSES AUTO IPV4-USED IPV4-FREE IPV6-USED ACCEPTED READY REASON AGE"
    cells = [line.split()[:-1] for line in lines]
    assert cells[1] == ["edge", '["192.0.2.128/29"]', "true", "2", "5", "Accepted", "True", "Ready"]
    assert cells[2][0] == "twin"
    assert cells[2][-3:] == ["Overlap", "False", "NoAddresses"]
    wide = cluster.installation.plane.kubectl("get", "vipp", "edge", "-o", "wide").stdout.splitlines()
    assert wide[1].split()[3:7] == ["100", "7", "2", "5"]
