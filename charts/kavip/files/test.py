"""
What `helm test` runs, in kavip's own image: two Services through the API server, as a user sends them, dry-run.

One must be refused by kavip and one let through with its warning; then the API server reaches kavip, and trusts it.
"""

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


def ask(kind: str, annotations: dict[str, str]) -> tuple[int, str]:
    """The status and the words of the API server about a Service of type *kind*: its message, or its warnings."""
    server, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kavip-test", "annotations": annotations},
        "spec": {"type": kind, "ports": [{"port": 80}]},
    }
    trust = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    trust.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Python 3.13 requires extensions that many clusters' CAs lack
    connection = HTTPSConnection(server, port, context=trust, timeout=30)
    connection.request(
        "POST",
        f"/api/v1/namespaces/{os.environ['NAMESPACE']}/services?dryRun=All",
        body=json.dumps(service),
        headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": "application/json"},
    )
    answer = connection.getresponse()
    warnings = " ".join(answer.headers.get_all("Warning", []))
    return answer.status, json.load(answer).get("message") or warnings


def problem() -> str:
    """What is wrong; nothing when kavip does what it should."""
    try:
        refused = ask("LoadBalancer", {GROUP: "not-a-name"})
        passed = ask("ClusterIP", {"kavip.io/pool": "none"})
    except OSError as error:
        return f"the API server does not answer: {error}"
    if refused[0] != 422 or GROUP not in refused[1]:
        return f"a Service of the group `not-a-name` is not refused by kavip: {refused}"
    if passed[0] != 201 or "kavip.io/pool" not in passed[1]:
        return f"a Service that kavip only warns about is not let through with its warning: {passed}"
    print(f"refused, as it should be: {refused[1]}\nlet through, as it should be: {passed[1]}")
    return ""


def main() -> None:
    """Ask until all is well, or patience ends."""
    end = time.monotonic() + PATIENCE
    while (wrong := problem()) and time.monotonic() < end:
        time.sleep(2)
    sys.exit(wrong or 0)


main()
