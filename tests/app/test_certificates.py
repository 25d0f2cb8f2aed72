"""Each mode of certificates on a real API server that calls kavip through its Service, with the chart's own rights."""

from collections.abc import Iterator

import pytest

from hack.testbed import runs
from hack.testbed.process import wait_for
from hack.testbed.programs import Programs
from kavip import names
from kavip.webhook import certs
from tests.app import site as sites
from tests.app.site import Site

pytestmark = [pytest.mark.apiserver, pytest.mark.netns, pytest.mark.chart, pytest.mark.timeout(600)]

HOST = "kavip-webhook.kavip.svc"
PATIENCE = 120.0
CA = names.CA_SECRET_NAME


@pytest.fixture
def site(programs: Programs) -> Iterator[Site]:
    """A control plane in a machine of its own."""
    with runs.temporary() as state, sites.opened(programs, state) as found:
        yield found
        for replica in found.replicas:
            print(f"--- {replica.log.name}\n{replica.log.read_text()[-6000:]}")  # noqa: T201 - shown when the test fails


def until(what: str, holds: object) -> None:
    """Wait until *holds*."""
    wait_for(what, holds, timeout=PATIENCE, interval=0.1)  # type: ignore[arg-type]


def test_self(site: Site) -> None:
    """Replicas that start at once share a CA; every way of rotating it passes without one lost write, and ends."""
    site.install()
    one, other = site.start(), site.start()
    for replica in (one, other):
        until("a replica is ready", lambda replica=replica: replica.unready() == "")
    first = certs.read_bundle(site.data(CA)["tls.crt"])
    assert site.bundle() == first
    assert certs.signed(first[0], one.leaf())
    assert certs.signed(first[0], other.leaf())
    with site.writing() as writer:
        site.plane.kubectl("annotate", "secret", CA, sites.OWN, f"{names.ROTATE_ANNOTATION}=true")
        until("the rotation is over", lambda: rotated(site, first[0]))
        assert writer.failures == []
        second = site.bundle()
        site.plane.kubectl("delete", "secret", CA, sites.OWN)
        until("the CA is another once more", lambda: rotated(site, second[0]))
        third = site.bundle()
        site.plane.kubectl("annotate", "secret", CA, sites.OWN, f"{names.ROTATE_ANNOTATION}=true")
        site.fall(other)
        until("the rotation ends without the one that is gone", lambda: rotated(site, third[0]))
    assert [each for each in writer.failures if "connection refused" not in each] == []
    assert writer.written > 50


def rotated(site: Site, before: object) -> bool:
    """Whether one CA is trusted, another than *before*, and every replica serves a leaf of it."""
    found = site.bundle()
    return (
        len(found) == 1
        and found[0] != before
        and all(certs.signed(found[0], replica.leaf()) for replica in site.replicas)
    )
