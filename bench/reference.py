"""
The reference operation of benchmarks in process: decode one Service as ``kavip.kube`` does it.

Every object that a decision reads was decoded once, so a decision is compared with that. It is mostly C (msgspec), and
allocates as many objects as a decision does.
"""

from functools import partial
from typing import Final

import msgspec

from bench import site
from bench.timing import Clock, timed
from kavip.kube.codec import decode
from kavip.kube.resources import SERVICES

NAME: Final = "decoding of a Service"
AT_ONCE: Final = 16  # so that reading the clock does not count


def body() -> bytes:
    """A Service with an address, as the API server sends it."""
    found = site.service("bench-1", "s000001", annotations=site.notes(1)) | site.status(1)
    found["metadata"] |= {
        "uid": "6f1f6a2e-8f0e-4a3e-9d3c-000000000001",
        "resourceVersion": "1000001",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [_managed("kubectl-client-side-apply", ""), _managed("kavip", "status")],
    }
    found["spec"] |= {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"]}
    found["spec"] |= {"ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"}
    return msgspec.json.encode(found)


def decoding() -> Clock:
    """A clock of the reference operation."""
    operation = partial(decode, SERVICES, body())

    def repeat() -> None:
        for _ in range(AT_ONCE):
            operation()

    return lambda: timed(repeat) / AT_ONCE


def _managed(manager: str, part: str) -> dict[str, object]:
    fields: dict[str, object] = {"f:metadata": {"f:annotations": {}}, "f:spec": {"f:ports": {}, "f:type": {}}}
    when = {"apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1"}
    return {"manager": manager, "operation": "Update", **when, "fieldsV1": fields, "subresource": part}
