"""Refusals by the real API server and the real kubectl."""

import json

import pytest

from hack.demo import tour
from hack.refusals import Case
from tests.app.conftest import Installation, a_group, a_pool, a_service, wait_for

pytestmark = pytest.mark.apiserver


def start_with_one_service(installation: Installation) -> None:
    """kavip with a pool, a default group, and a Service that holds the first address."""
    installation.start()
    installation.apply_and_wait(a_pool("edge", "192.0.2.128/27"), a_group("edge", default=True))
    installation.apply(a_service("web"))
    wait_for("shop/web has its address", lambda: installation.addresses("web") == ["192.0.2.128"])


def test_every_case_of_the_tour_is_refused_with_its_message(installation: Installation) -> None:
    """The cases of the demo with kavip's own caches: the messages of the table, for each kind of apply."""
    installation.start()
    installation.apply(*tour.cluster())
    wait_for("shop/first has its address", lambda: installation.addresses("first") == ["192.0.2.130"])
    wait_for("so has shop/second", lambda: installation.addresses("second"))
    for case in tour.cases():

        def refused(case: Case = case) -> bool:
            done = installation.try_apply(case.object, flags=("--dry-run=server",))
            return done.returncode != 0 and done.stderr.endswith(case.printed)

        wait_for(f"kavip has observed the objects of {case}", refused)
        for flags in ((), ("--server-side", "--field-manager=somebody", "--force-conflicts")):
            done = installation.try_apply(case.object, flags=flags)
            assert done.returncode != 0 and done.stderr.endswith(case.printed), (str(case), flags, done.stderr)


def test_a_refusal_carries_code_and_causes(installation: Installation) -> None:
    """The API server passes on 422, reason Invalid, and one cause per field."""
    start_with_one_service(installation)
    notes = {"kavip.io/pool": "nowhere", "keepalived-operator.redhat-cop.io/spreadvips": "yes"}
    done = installation.try_apply(a_service("two", annotations=notes), flags=("-v=8",))
    assert done.returncode != 0
    for field in (
        "metadata.annotations[kavip.io/pool]",
        "metadata.annotations[keepalived-operator.redhat-cop.io/spreadvips]",
    ):
        assert field in done.stderr
    assert '"code":422' in done.stderr


def test_a_dry_run_reserves_nothing(installation: Installation) -> None:
    """sideEffects None: a dry run is accepted and changes nothing."""
    start_with_one_service(installation)
    done = installation.try_apply(a_service("dry"), flags=("--dry-run=server",))
    assert done.returncode == 0, done.stderr
    assert installation.get("service", "dry", "-n", "shop") is None
    installation.apply(a_service("wet"))
    wait_for("the next address is given", lambda: installation.addresses("wet") == ["192.0.2.129"])


def test_a_new_group_gets_its_defaults_and_keeps_them(installation: Installation) -> None:
    """The mutating webhook writes them; applying the same manifest again changes nothing."""
    start_with_one_service(installation)
    spec = installation.get("keepalivedgroup", "edge", "-n", "lb")["spec"]
    wanted = {"unicastEnabled": True, "vrrpVersion": 3, "advertIntervalMilliseconds": 200, "segment": "default"}
    assert wanted.items() <= spec.items()
    again = installation.try_apply(a_group("edge", default=True))
    assert "unchanged" in again.stdout
    text = json.dumps(a_group("edge", default=True))

    def replaced() -> bool:  # kavip may write the status meanwhile, and kubectl replace is conditional
        return installation.plane.kubectl("replace", "-f", "-", input=text, check=False).returncode == 0

    wait_for("kubectl replace passes", replaced)
    assert installation.get("keepalivedgroup", "edge", "-n", "lb")["spec"] == spec


def test_an_unmanaged_service_is_accepted(installation: Installation) -> None:
    """Another class, ClusterIP, and no group are accepted with any annotations."""
    start_with_one_service(installation)
    notes = {"kavip.io/pool": "nowhere"}
    installation.apply(
        a_service("foreign", annotations=notes, loadBalancerClass="example.com/other"),
        a_service("plain", annotations=notes, type="ClusterIP", allocateLoadBalancerNodePorts=None),
    )


def test_deletion_is_always_accepted(installation: Installation) -> None:
    """A Service or a group may be deleted, whatever depends on it."""
    start_with_one_service(installation)
    installation.plane.kubectl("delete", "keepalivedgroup", "edge", "-n", "lb")
    installation.plane.kubectl("delete", "service", "web", "-n", "shop")


def test_a_pool_whose_addresses_are_held_is_not_deleted(installation: Installation) -> None:
    """The refusal lists the Services; an annotation permits the deletion."""
    start_with_one_service(installation)
    done = installation.plane.kubectl("delete", "vippool", "edge", check=False)
    assert done.returncode != 0
    assert "shop/web" in done.stderr
    installation.plane.kubectl("annotate", "vippool", "edge", "kavip.io/allow-stranding=true")
    installation.plane.kubectl("delete", "vippool", "edge")
    assert installation.addresses("web") == ["192.0.2.128"]
