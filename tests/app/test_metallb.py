"""
MetalLB's own controller beside kavip on one API server.

With a class each controller ignores the Services of the other. Without a class MetalLB claims every Service without a
class, and removes addresses that are not from its pools: kavip stops restoring them, and reports it.
"""

import sys
from collections.abc import Callable, Iterator

import pytest

from hack.testbed import metallb as testbed
from hack.testbed import process
from hack.testbed.metallb import CLASS, SYSTEM, VERSION
from hack.testbed.programs import Programs
from tests.app.conftest import Installation, a_group, a_pool, a_service, crd, free_port, object_of, wait_for

pytestmark = pytest.mark.apiserver

CRDS = [
    crd("metallb.io", kind, plural, scope="Namespaced", versions=("v1beta2", "v1beta1"))
    for kind, plural in {
        "BFDProfile": "bfdprofiles",
        "BGPAdvertisement": "bgpadvertisements",
        "BGPPeer": "bgppeers",
        "Community": "communities",
        "ConfigurationState": "configurationstates",
        "IPAddressPool": "ipaddresspools",
        "L2Advertisement": "l2advertisements",
        "ServiceBGPStatus": "servicebgpstatuses",
        "ServiceL2Status": "servicel2statuses",
    }.items()
]
NOTES = {"keepalived-operator.redhat-cop.io/keepalivedgroup": "lb/edge"}

Start = Callable[..., None]


def address_pool(**spec: object) -> dict[str, object]:
    """MetalLB's pool."""
    spec = {"addresses": ["198.51.100.0/28"], **spec}
    return object_of("IPAddressPool", "pool", namespace=SYSTEM, version=VERSION, spec=spec)


@pytest.fixture
def metallb(installation: Installation, programs: Programs) -> Iterator[Start]:
    """Start MetalLB's controller with further flags; its kinds and its pool exist."""
    plane, running = installation.plane, []
    installation.apply(*CRDS, object_of("Namespace", SYSTEM))
    plane.wait_established()
    pod = {"containers": [{"name": "controller", "image": "metallb"}]}
    installation.apply(address_pool(), object_of("Pod", "controller", namespace=SYSTEM, spec=pod))

    def start(*flags: str) -> None:
        command = testbed.command(programs, plane.kubeconfig, *flags, port=free_port(), probe_port=free_port())
        running.append(process.spawn(command, log=plane.state / "metallb.log"))

    try:
        yield start
    finally:
        process.stop(running, grace=5)
        log = plane.state / "metallb.log"
        sys.stdout.write(f"--- MetalLB\n{process.tail(log, 40)}\n")
        log.unlink(missing_ok=True)
        plane.kubectl(
            "delete", "ipaddresspools", "--all", "-n", SYSTEM
        )  # deleting kinds may take minutes, so they stay
        plane.kubectl("delete", "pod", "controller", "-n", SYSTEM, "--grace-period=0", "--force")


def reloads(installation: Installation) -> int:
    """How often MetalLB has read its pools."""
    return (installation.plane.state / "metallb.log").read_text().count('"config reloaded"')


def writers(installation: Installation, name: str) -> list[str]:
    """The writers of the status of Service *name*, in the order of the writes."""
    found = installation.plane.audit.events(resource="services", subresource="status")
    return ["kavip" if "kavip" in event.agent else "metallb" for event in found if event.name == name]


def test_with_a_class_of_its_own_each_serves_its_services(installation: Installation, metallb: Start) -> None:
    """Neither writes to a Service of the other."""
    installation.plane.audit.mark()
    metallb(f"--lb-class={CLASS}")
    installation.start(webhook=False)
    installation.apply(a_pool("edge", "192.0.2.128/27"), a_group("edge", default=True))
    theirs = a_service("theirs", annotations=NOTES, loadBalancerClass=CLASS)
    installation.apply(theirs, a_service("plain"), a_service("ours", loadBalancerClass="kavip.io/keepalived"))
    wait_for("MetalLB serves its own", lambda: installation.addresses("theirs") == ["198.51.100.0"])
    wait_for("kavip serves the others", lambda: installation.addresses("plain") and installation.addresses("ours"))
    wait_for("the status is complete", lambda: installation.condition("ours", "kavip.io/Programmed"))
    assert {name: set(writers(installation, name)) for name in ("theirs", "plain", "ours")} == {
        "theirs": {"metallb"},
        "plain": {"kavip"},
        "ours": {"kavip"},
    }


def test_without_a_class_metallb_takes_what_it_wants_and_kavip_gives_way(
    installation: Installation, metallb: Start
) -> None:
    """Addresses that MetalLB writes stay; what it removes without a replacement, kavip writes ever more rarely."""
    installation.start(webhook=False)
    installation.apply(a_pool("edge", "192.0.2.128/27"), a_group("edge", default=True))
    metallb()
    installation.apply(
        a_service("ours", loadBalancerClass="kavip.io/keepalived"), a_service("noted", annotations=NOTES)
    )
    wait_for("MetalLB wins", lambda: installation.addresses("noted") == ["198.51.100.0"])
    wait_for("kavip reports it", lambda: installation.condition("noted").get("reason") == "ForeignStatus")
    wait_for("a class is respected", lambda: installation.addresses("ours"))
    read = reloads(installation)
    installation.apply(address_pool(autoAssign=False))
    wait_for("MetalLB has read its pool again", lambda: reloads(installation) > read)
    installation.plane.audit.mark()
    installation.apply(a_service("fought"))
    wait_for(
        "kavip stops restoring the address",
        lambda: "another controller removes" in installation.condition("fought").get("message", ""),
    )
    wait_for("kavip has tried again", lambda: writers(installation, "fought").count("kavip") >= 6)
    assert len(writers(installation, "fought")) < 16
    assert installation.condition("ours")["reason"] == "Assigned"
