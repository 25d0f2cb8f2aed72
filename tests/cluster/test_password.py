"""A VRRP password that is created late, on a real kubelet: pods have it soon, although kavip may not read Secrets."""

import json
import re
import shlex
from typing import Any

import pytest

from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from kavip import names
from kavip.agent.config.localize import AUTHENTICATION_MARKER
from tests.app.conftest import a_group, object_of
from tests.cluster.provisioning import apply_objects, create_namespaces
from tests.support import manifests

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PATIENCE = 240.0
"""Seconds: less than half of kubelet's own sync period (hack.testbed.node)."""


def programmed(cluster: Cluster) -> dict[str, Any]:
    """The group's Programmed; empty where it has none."""
    found = cluster.kubectl("get", "keepalivedgroup", "edge", "-n", "lb", "-o", "json", check=False).stdout or "{}"
    conditions = json.loads(found).get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == "Programmed"), {})


def annotation(cluster: Cluster) -> str:
    """The last event of the group's pod."""
    path = names.CONFIG_HASH_ANNOTATION.replace(".", r"\.")
    return cluster.kubectl(
        "get", "pods", "-n", "lb", "-o", f"jsonpath={{.items[*].metadata.annotations.{path}}}"
    ).stdout


def test_a_password_that_comes_late_is_taken_up_soon(installed: Cluster) -> None:
    """The group reports SecretMissing; with the Secret, it is programmed before kubelet's own sync period ends."""
    create_namespaces(installed, "lb")
    auth: dict[str, Any] = {
        "passwordAuth": {"secretRef": {"name": "vrrp"}},
        "vrrpVersion": 2,
        "advertIntervalMilliseconds": 1000,
    }
    auth |= {"virtualIPs": [{"address": "192.0.2.250/24"}]}  # without an instance there is nothing to authenticate
    try:
        installed.kubectl("create", "--filename=-", input=json.dumps(a_group("edge", **auth)))
        wait_for(
            "the Secret is missed", lambda: programmed(installed).get("reason") == "SecretMissing", timeout=PATIENCE
        )
        known_hashes = {annotation(installed)}
        wait_for(
            "pods get the annotation again", lambda: annotation(installed) not in known_hashes, timeout=PATIENCE
        )  # their start is over
        secret = object_of("Secret", "vrrp", namespace="lb", stringData={"password": "s3cret"})
        installed.kubectl("create", "--filename=-", input=json.dumps(secret))
        wait_for("the group is programmed", lambda: programmed(installed).get("status") == "True", timeout=PATIENCE)
    finally:
        installed.kubectl("delete", "namespace", "lb", "--wait=false")


def first_password() -> list[list[str]]:
    """The commands of the page, for the group lb/edge."""
    page = (manifests.ROOT / "docs" / "howto" / "switch.md").read_text()
    section = page.split("## Set the first password")[1].split("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    lines = block.replace("NS", "lb").replace("NAME", "edge").splitlines()
    return [shlex.split(line.removeprefix("kubectl ")) for line in lines]


def authenticates(cluster: Cluster) -> bool:
    """Whether the published text asks for the password, and every node runs it."""
    path = f"--output=jsonpath={{.data.{names.CONFIG_KEY.replace('.', chr(92) + '.')}}}"
    text = cluster.kubectl("get", "configmap", "edge", "-n", "lb", path).stdout
    return AUTHENTICATION_MARKER in text and programmed(cluster).get("status") == "True"


def test_the_first_password_of_a_running_group(installed: Cluster) -> None:
    """The two commands of the page are accepted as they are, and the nodes then send the password."""
    create_namespaces(installed, "lb")
    try:
        apply_objects(installed, a_group("edge", virtualIPs=[{"address": "192.0.2.250/24"}]))
        wait_for("the group is programmed", lambda: programmed(installed).get("status") == "True", timeout=PATIENCE)
        assert not authenticates(installed)
        for command in first_password():
            installed.kubectl(*command)
        wait_for("the nodes send the password", lambda: authenticates(installed), timeout=PATIENCE)
        path = "--output=jsonpath={.status.virtualIPs[0].state}"
        group = ("get", "keepalivedgroup", "edge", "-n", "lb", path)
        wait_for("the VIP is held", lambda: installed.kubectl(*group).stdout == "MASTER", timeout=PATIENCE)
    finally:
        installed.kubectl("delete", "namespace", "lb", "--wait=false")
