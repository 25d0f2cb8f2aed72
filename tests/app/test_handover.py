"""Webhook and controller as processes with accounts of their own: the webhook's CA reaches caBundle and stays there."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from hack.testbed import process, runs
from hack.testbed.programs import Programs
from kavip import names
from kavip.kube.resources import Component
from kavip.pki import cabundleconfigmap, certificates
from kavip.webhook.certs.selfsigned import RECONCILE_SECONDS
from tests.app import deployment as deployments
from tests.app.deployment import Deployment, Replica
from tests.app.test_certificates import ENOUGH, OTHERS, VALIDATING, filled, ready, rotated, serve_leaves_of, until
from tests.support import accounts
from tests.support.rbac import wait_bound

pytestmark = [pytest.mark.apiserver, pytest.mark.netns, pytest.mark.chart, pytest.mark.timeout(900)]

WEBHOOK, CONTROLLER = Component.WEBHOOK, Component.CONTROLLER
USERS = {accounts.account(each): each for each in Component}
AWAITED = "the leader of the controller has not injected ConfigMap kavip/kavip-webhook-ca; see its log"


@pytest.fixture
def split(programs: Programs) -> Iterator[Deployment]:
    """A deployment whose components have accounts of their own, with exactly the rights in the table of resources."""
    with runs.temporary() as state, deployments.running(programs, state) as found:
        yield found
        for log in sorted(state.glob("kavip-*.log")):
            print(f"--- {log.name}\n{log.read_text()[-6000:]}")  # noqa: T201 - shown when the test fails
            assert "PRIVATE" not in log.read_text()


def install(split: Deployment, *settings: str) -> None:
    """Install the chart, and create the accounts."""
    split.install(*settings)
    made = [each for component in Component for each in accounts.objects(component)]
    split.plane.kubectl("apply", "--filename=-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
    for component in Component:
        wait_bound(split.plane, accounts.account(component), leads=component is CONTROLLER)


def start(split: Deployment, component: Component) -> Replica:
    """Start a replica of *component*."""
    return split.start(component.value, account=accounts.account(component))


def test_self(split: Deployment) -> None:
    """A fresh start, a rotation, a restart without a controller, and an emptied caBundle lose no write."""
    install(split)
    one, other = start(split, WEBHOOK), start(split, WEBHOOK)
    for each in (one, other):
        until("readiness says what is awaited", lambda each=each: AWAITED in each.unready())  # type: ignore[misc]  # a default
    leaders = [start(split, CONTROLLER), start(split, CONTROLLER)]
    ready(one, other, *leaders)
    first = split.bundle()
    assert rotated(split, [])
    assert handed_over(split) == first
    with split.writing() as writer:
        split.plane.kubectl(
            "annotate", "secret", names.CA_SECRET_NAME, deployments.OWN, f"{names.ROTATE_ANNOTATION}=true"
        )
        until("the CA is another, and alone", lambda: rotated(split, first))
        process.stop([each.process for each in leaders])
        second = split.bundle()
        third = split.start_ready(WEBHOOK.value, account=accounts.account(WEBHOOK))
        with writer.paused():
            split.kill(one)
            until("the API server asks others", lambda: not writer.write().returncode)
        until("enough is written", lambda: writer.written > ENOUGH)
    assert writer.failures == []
    assert split.bundle() == second
    split.write_bundle(b"")
    ready(start(split, CONTROLLER))
    until("the bundle is back", lambda: split.bundle() == second)
    restored(split)
    refused(split, other, third)
    ready(other, third)
    rights(split)


def test_provided(split: Deployment) -> None:
    """The certificate of a new CA is served when the controller has injected that CA; no write fails."""
    install(split, "certs.mode=provided")
    old, new = certificates.new_ca(datetime.now(UTC)), certificates.new_ca(datetime.now(UTC))
    split.write_secret(OTHERS, filled(old))
    one, other = start(split, WEBHOOK), start(split, WEBHOOK)
    until("readiness says what is awaited", lambda: AWAITED in one.unready())
    leader = start(split, CONTROLLER)
    ready(one, other, leader)
    assert split.bundle() == [old.certificate]
    process.stop([leader.process])
    with split.writing() as writer:
        split.write_secret(OTHERS, filled(new))
        until("both CAs are handed over", lambda: {*handed_over(split)} == {old.certificate, new.certificate})
        ready(start(split, CONTROLLER))
        until("both serve the new one", lambda: serve_leaves_of(new, one, other))
        until("enough is written", lambda: writer.written > ENOUGH)
    assert writer.failures == []
    rights(split)


def handed_over(split: Deployment) -> list[object]:
    """The CAs in the ConfigMap."""
    path = r"--output=jsonpath={.data.ca\.crt}"
    text = split.plane.kubectl("get", "configmap", names.CA_CONFIGMAP_NAME, deployments.OWN, path).stdout
    return [*cabundleconfigmap.decode(text)]


def restored(split: Deployment) -> None:
    """Assert that the controller restores an emptied caBundle before its next regular reconcile."""
    before, seconds = split.bundle(), list[float]()
    for _ in range(5):
        split.write_bundle(b"")
        begun = time.monotonic()
        until("the bundle is back", lambda: split.bundle() == before)
        seconds.append(time.monotonic() - begun)
    assert min(seconds) < RECONCILE_SECONDS / 2, seconds
    print("caBundle restored after", *(f"{each:.1f}" for each in seconds), "s")  # noqa: T201 - a figure for reports


def refused(split: Deployment, *webhooks: Replica) -> None:
    """Assert that rubbish in the ConfigMap is reported and changes nothing, and that one of *webhooks* replaces it."""
    before = split.bundle()
    patch = json.dumps({"data": {names.CA_BUNDLE_KEY: "rubbish"}})
    with paused(*webhooks):  # one would replace it before the controller has read it
        split.plane.kubectl("patch", "configmap", names.CA_CONFIGMAP_NAME, deployments.OWN, f"--patch={patch}")
        until("an Event says so", lambda: "want certificates as PEM" in split.event_notes("CertificateUnusable"))
    until(
        "the ConfigMap is restored",
        lambda: (
            "rubbish"
            not in split.plane.kubectl(
                "get", "configmap", names.CA_CONFIGMAP_NAME, deployments.OWN, "--output=yaml"
            ).stdout
        ),
    )
    assert split.bundle() == before


@contextmanager
def paused(*replicas: Replica) -> Iterator[None]:
    """Stop *replicas* for the time of the context; they keep their connections."""
    for each in replicas:
        each.process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for each in replicas:
            each.process.signal(signal.SIGCONT)


def rights(split: Deployment) -> None:
    """Assert that nothing was refused, that the controller saw no Secret, and that the webhook wrote only its own."""
    asked = [event for event in split.plane.audit if event.user in USERS]
    assert {USERS[event.user] for event in asked} == {*Component}
    assert [f"{event.verb} {event.uri}" for event in asked if event.code in (401, 403)] == []
    by = {each: [event for event in asked if USERS[event.user] is each] for each in Component}
    assert [event.uri for event in by[CONTROLLER] if event.resource == "secrets"] == []
    written = {event.resource for event in by[WEBHOOK] if event.verb in ("create", "patch", "update", "delete")}
    assert written <= {"secrets", "configmaps", "events", "subjectaccessreviews"}
    assert "leases" not in {event.resource for event in by[WEBHOOK]}
    assert VALIDATING in {event.resource for event in by[CONTROLLER] if event.verb == "patch"}
