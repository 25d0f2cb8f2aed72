"""What a real controller tells: Events on each change and none on no change, the metrics, and what kubectl prints."""

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

FULL = "pool edge is full: 2 of 2 assigned"
REMEDY = "free an address or enlarge the pool"
WISH = "kavip.io/addresses"


class Stage:
    """An installation with one controller, and what has been told on it."""

    def __init__(self, plane: ControlPlane) -> None:
        """Two addresses for three Services."""
        self.site = Installation(plane)
        self.replica: Replica = self.site.start(webhook=False)
        self.site.applied(a_pool("edge", "192.0.2.128/31"), a_group("edge", default=True, nodeSelector={"a": "b"}))
        wait_for("kavip knows the pool", lambda: self.pool("Ready") == "Ready")
        for name in ("s0", "s1"):
            self.site.applied(a_service(name))
            wait_for(f"{name} has an address", partial(self.site.addresses, name))
        self.site.applied(a_service("young"))
        self.until("young", "PoolExhausted")

    def pool(self, kind: str, name: str = "edge") -> str:
        """The reason of a condition of the pool."""
        found = (self.site.get("vippool", name) or {}).get("status", {}).get("conditions", [])
        return next((str(each["reason"]) for each in found if each["type"] == kind), "")

    def until(self, name: str, reason: str, message: str = "") -> None:
        """Wait for the condition of a Service."""

        def is_so() -> bool:
            found = self.site.condition(name)
            return found.get("reason") == reason and message in found.get("message", "")

        wait_for(f"{name}: {reason} {message}", is_so)

    def edit(self, kind: str, name: str, patch: dict[str, Any], *flags: str) -> None:
        """``kubectl patch``."""
        place = ("-n", "shop") if kind == "service" else ()
        self.site.plane.kubectl("patch", kind, name, *place, "--type=merge", "-p", json.dumps(patch), *flags)

    def wish(self, name: str, address: str | None) -> None:
        """The Service asks for *address*."""
        self.edit("service", name, {"metadata": {"annotations": {WISH: address}}})

    def uid(self, name: str) -> str:
        """Of the pool, or the Service: what others have left behind bears the same names."""
        subject = ("vippool", name) if name == "edge" else ("service", name, "-n", "shop")
        return str((self.site.get(*subject) or {}).get("metadata", {}).get("uid", ""))

    def told(self, name: str) -> Counter[str]:
        """How often an Event was told of the address of the Service or pool, by its note."""
        found = self.site.get("events.v1.events.k8s.io", "-A") or {"items": []}
        told: Counter[str] = Counter()
        uid = self.uid(name)
        for item in found["items"]:
            about = item["regarding"]
            is_ours = (item["reportingController"], about.get("uid")) == ("kavip.io/controller", uid)
            if is_ours and item["reason"] not in ("Pending", "NoNodes"):
                told[item["note"]] += (item.get("series") or {}).get("count", 1)
        return told

    def hears(self, name: str, note: str) -> None:
        """Wait for an Event about the Service or pool."""
        wait_for(f"{name} is told {note}", lambda: self.told(name)[note])

    def told_all(self) -> dict[str, Counter[str]]:
        """Of everything that the test is about, as soon as nothing more comes."""

        def now() -> dict[str, Counter[str]]:
            return {name: self.told(name) for name in ("s0", "s1", "young", "edge")}

        before = now()
        while True:
            time.sleep(1.0)
            if (after := now()) == before:
                return after
            before = after

    def rests(self) -> None:
        """Wait until the controller has nothing to do, and has not had for a while."""
        quiet = 0
        while quiet < 10:
            before = self.metrics("kavip_reconcile_total")
            time.sleep(0.2)
            idle = self.metrics("kavip_workqueue_depth") == {"": 0.0}
            quiet = quiet + 1 if idle and self.metrics("kavip_reconcile_total") == before else 0

    def metrics(self, name: str) -> dict[str, float]:
        """The values of the metric *name*, by label set as /metrics prints it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.replica.metrics_port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found = (line.rpartition(" ") for line in lines if line.startswith((f"{name}{{", f"{name} ")))
        return {labels.removeprefix(name): float(value) for labels, _, value in found}


@pytest.fixture
def stage(prepared: ControlPlane) -> Iterator[Stage]:
    """A clean one."""
    made = Stage(prepared)
    try:
        yield made
    finally:
        made.site.close()


def test_each_change_is_told_once(stage: Stage) -> None:
    """One life of a pool and three Services, chapter by chapter: Events, metrics, what kubectl prints."""
    what_is_given_and_what_is_not(stage)
    the_metrics_move(stage)
    what_does_not_concern_a_service_costs_no_look(stage)
    a_lost_address_is_told_with_its_holder(stage)
    a_wish_for_anothers_address_is_told(stage)
    a_move_is_told_with_old_and_new(stage)
    a_restart_tells_nothing(stage)
    kubectl_prints_the_pools(stage)


def what_is_given_and_what_is_not(stage: Stage) -> None:
    """One Event for each; edits that change no address, and messages that change alone, make none."""
    full = "full: 2 of 2 assigned; free an address or add some to spec.addresses"
    stage.hears("young", f"{FULL}; {REMEDY}")
    stage.hears("edge", full)
    stage.hears("s0", "192.0.2.128 from pool edge")
    assert stage.told("s0") == {"192.0.2.128 from pool edge": 1}
    assert stage.site.condition("young")["message"] == f"{FULL}; {REMEDY}"
    selective = a_pool("lab", "198.51.100.0/24", namespaceSelector={"matchLabels": {"env": "prod"}})
    stage.site.applied(selective)
    room = "pool lab has room but cannot serve namespace shop (namespaceSelector)"
    stage.until("young", "PoolExhausted", room)
    stage.edit("service", "young", {"metadata": {"labels": {"a": "b"}}})
    told = stage.told_all()
    assert told["young"] == {f"{FULL}; {REMEDY}": 1}
    assert told["edge"] == {full: 1}


def the_metrics_move(stage: Stage) -> None:
    """Pools by state, waiters by pool and reason, allocations; a pool that is gone leaves no line."""

    def of(pool: str) -> dict[str, float]:
        found = stage.metrics("kavip_pool_addresses")
        states = ("total", "assigned", "available", "cooling")
        return {s: found[key] for s in states if (key := f'{{family="ipv4",pool="{pool}",state="{s}"}}') in found}

    assert of("edge") == {"total": 2, "assigned": 2, "available": 0, "cooling": 0}
    assert of("lab")["available"] == 256
    assert stage.metrics("kavip_services_waiting") == {'{pool="edge",reason="PoolExhausted"}': 1}
    assert stage.metrics("kavip_allocation_seconds_count")[""] == 2
    assert stage.metrics("kavip_address_conflicts_total")['{reason="TwoServices"}'] == 0
    stage.site.plane.kubectl("delete", "vippool", "lab")
    wait_for("the pool's lines are gone", lambda: not of("lab"))
    stage.until("young", "PoolExhausted", f"{FULL}; {REMEDY}")


def what_does_not_concern_a_service_costs_no_look(stage: Stage) -> None:
    """Heartbeats, counts of pools, labels of pools and Services of others: nobody who holds or waits is planned."""

    def looks() -> float:
        found = stage.metrics("kavip_reconcile_total")
        return sum(number for labels, number in found.items() if 'kind="service"' in labels)

    stage.site.applied(object_of("Node", "n1"), a_pool("lab", "198.51.100.0/24", autoAssign=False))
    wait_for("the pool is looked at", lambda: stage.pool("Ready", "lab") == "Ready")
    stage.rests()
    before = looks()
    for second in range(3):
        beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:0{second}Z"}
        stage.edit("node", "n1", {"status": {"conditions": [beat]}}, "--subresource=status")
    stage.edit("vippool", "lab", {"metadata": {"labels": {"a": "b"}}})
    stage.edit("vippool", "lab", {"status": {"ipv4": {"assigned": 9}}}, "--subresource=status")
    wait_for("the count is put right", lambda: stage.site.get("vippool", "lab")["status"]["ipv4"]["assigned"] == 0)
    stage.site.applied(object_of("Service", "inner", namespace="other", spec={"ports": [{"port": 80}]}))
    stage.site.plane.kubectl("delete", "service", "inner", "-n", "other")
    stage.rests()
    assert looks() == before
    stage.site.plane.kubectl("delete", "vippool", "lab")
    wait_for("those who wait are looked at for that", lambda: looks() > before)


def a_lost_address_is_told_with_its_holder(stage: Stage) -> None:
    """Somebody writes an address into a second status: the older Service keeps it, the other is told whose it is."""
    ingress = [{"ip": "192.0.2.129", "ipMode": "VIP"}]
    stage.edit("service", "young", {"status": {"loadBalancer": {"ingress": ingress}}}, "--subresource=status")
    lost = f"{FULL}; {REMEDY} (was 192.0.2.129; 192.0.2.129 belongs to Service shop/s1, which is older)"
    stage.hears("young", lost)
    wait_for("it is taken back", lambda: not stage.site.addresses("young"))
    assert stage.metrics("kavip_address_conflicts_total")['{reason="TwoServices"}'] == 1
    assert stage.site.addresses("s1") == ["192.0.2.129"]


def a_wish_for_anothers_address_is_told(stage: Stage) -> None:
    """The loser of a contest for an address, by name."""
    stage.wish("young", "192.0.2.129")
    stage.until("young", "AddressInUse", "is used by Service shop/s1")
    assert stage.metrics("kavip_services_waiting") == {'{pool="edge",reason="AddressInUse"}': 1}
    stage.wish("young", None)
    stage.until("young", "PoolExhausted")


def a_move_is_told_with_old_and_new(stage: Stage) -> None:
    """The reason stays, the address does not; a stranded one is told as well."""
    stage.edit("vippool", "edge", {"spec": {"addresses": ["192.0.2.128/29"]}})
    stage.until("young", "Assigned")
    stage.wish("s0", "192.0.2.135")
    moved = "192.0.2.135 from pool edge (was 192.0.2.128)"
    stage.hears("s0", moved)
    stage.edit("vippool", "edge", {"spec": {"exclude": ["192.0.2.129"]}})
    stage.until("s1", "Stranded", "192.0.2.129 is excluded from pool edge")
    stage.hears("s1", stage.site.condition("s1")["message"])
    stage.hears("edge", "IPv4 addresses are free")
    stage.hears("young", "192.0.2.130 from pool edge")
    told = stage.told_all()
    assert told["young"]["192.0.2.130 from pool edge"] == 1
    assert told["s0"] == {"192.0.2.128 from pool edge": 1, moved: 1}
    assert sorted(told["s1"].values()) == [1, 1]
    assert told["edge"]["IPv4 addresses are free"] == 1
    assert stage.metrics("kavip_services_waiting") == {}


def a_restart_tells_nothing(stage: Stage) -> None:
    """All of it stands already."""
    told = stage.told_all()
    assert stage.replica.stop() == 0
    stage.replica = stage.site.start(webhook=False)
    wait_for("it leads", lambda: stage.metrics("kavip_leader")[""] == 1)
    assert stage.told_all() == told
    assert stage.metrics("kavip_allocation_seconds_count")[""] == 0


def kubectl_prints_the_pools(stage: Stage) -> None:
    """Addresses, use, and what is wrong; -o wide tells the totals; the older of two that overlap stays in force."""
    stage.site.applied(a_pool("twin", "192.0.2.130/32", "2001:db8::/64"))
    wait_for("it is told", lambda: stage.pool("Accepted", "twin") == "Overlap")
    counts = {"total": 7, "assigned": 2, "available": 5}
    wait_for("edge is counted", lambda: stage.site.get("vippool", "edge")["status"]["ipv4"] == counts)
    lines = stage.site.plane.kubectl("get", "vipp").stdout.splitlines()
    assert " ".join(lines[0].split()) == "NAME ADDRESSES AUTO IPV4-USED IPV4-FREE IPV6-USED ACCEPTED READY REASON AGE"
    cells = [line.split()[:-1] for line in lines]
    assert cells[1] == ["edge", '["192.0.2.128/29"]', "true", "2", "5", "Accepted", "True", "Ready"]
    assert cells[2][0] == "twin"
    assert cells[2][-3:] == ["Overlap", "False", "NoAddresses"]
    wide = stage.site.plane.kubectl("get", "vipp", "edge", "-o", "wide").stdout.splitlines()
    assert wide[1].split()[3:7] == ["100", "7", "2", "5"]
