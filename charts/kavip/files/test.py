"""
What `helm test` runs, in kavip's own image: two Services through the API server, as a user sends them, dry-run.

One must be refused by kavip and one let through with its warning; then the API server reaches kavip, and trusts it. The
pools and groups of the chart's values must be applied.
"""

import hashlib
import json
import os
import ssl
import sys
import time
from http.client import HTTPSConnection
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
GROUP = "keepalived-operator.redhat-cop.io/keepalivedgroup"
PATIENCE = 60  # seconds: pods start, and caBundle is written


def send(method: str, path: str, body: object = None) -> tuple[int, dict, str]:
    """The status, the body and the warnings with which the API server answers."""
    server, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    trust = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Python 3.13 requires extensions that many clusters' CAs lack
    connection = HTTPSConnection(server, port, context=trust, timeout=30)
    connection.request(
        method,
        path,
        body=json.dumps(body) if body else None,
        headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": "application/json"},
    )
    answer = connection.getresponse()
    warnings = " ".join(answer.headers.get_all("Warning", []))
    return answer.status, json.load(answer), warnings


def ask(kind: str, annotations: dict[str, str]) -> tuple[int, str]:
    """The status and the words of the API server about a Service of type *kind*: its message, or its warnings."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kavip-test", "annotations": annotations},
        "spec": {"type": kind, "ports": [{"port": 80}]},
    }
    status, body, warnings = send("POST", f"/api/v1/namespaces/{os.environ['NAMESPACE']}/services?dryRun=All", service)
    return status, body.get("message") or warnings


def unapplied() -> str:
    """The pools and groups of the chart's values that kavip has not applied, with the reasons."""
    status, found, _ = send("GET", f"/api/v1/namespaces/{os.environ['RELEASE_NAMESPACE']}/configmaps/kavip-values")
    if status != 200:
        return f"ConfigMap kavip-values cannot be read: {found.get('message')}"
    text = found["data"]["values.json"]
    values, observed = json.loads(text), hashlib.sha256(text.encode()).hexdigest()[:16]
    conditions = json.loads(found["metadata"].get("annotations", {}).get("kavip.io/conditions", "[]"))
    current = [each for each in conditions if each["observed"] == observed]
    if len(current) < len(values["pools"]) + len(values["groups"]):
        return "kavip has not applied the values pools and groups yet: look at the log of its controller"
    return "; ".join(each["message"] for each in current if each["status"] != "True")


def problem() -> str:
    """What is wrong; nothing when kavip does what it should."""
    try:
        refused = ask("LoadBalancer", {GROUP: "not-a-name"})
        passed = ask("ClusterIP", {"kavip.io/pool": "none"})
        left = unapplied() if "RELEASE_NAMESPACE" in os.environ else ""
    except OSError as error:
        return f"the API server does not answer: {error}"
    if refused[0] != 422 or GROUP not in refused[1]:
        return f"a Service of the group `not-a-name` is not refused by kavip: {refused}"
    if passed[0] != 201 or "kavip.io/pool" not in passed[1]:
        return f"a Service that kavip only warns about is not let through with its warning: {passed}"
    if left:
        return left
    print(f"refused, as it should be: {refused[1]}\nlet through, as it should be: {passed[1]}")
    return ""


def main() -> None:
    """Ask until all is well, or patience ends."""
    end = time.monotonic() + PATIENCE
    while (wrong := problem()) and time.monotonic() < end:
        time.sleep(2)
    sys.exit(wrong or 0)


main()
