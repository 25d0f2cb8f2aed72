"""
Objects of the largest permitted size: the evaluation of one must not block other reviews for long.

The time of an evaluation is a ratio to decoding the same bytes as plain JSON. Both are CPU times of this process, so a
busy machine does not change the result.
"""

import json
from collections.abc import Iterator
from time import process_time
from typing import Any, Final

import msgspec

from bench.review import cluster
from fuzz.policy import evaluate
from kavip import names

MOST: Final = 100.0
_SERVICE: Final = {"metadata": {"name": "w", "namespace": "shop"}, "spec": {"type": "LoadBalancer"}}


def objects(size: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The large field, the path, and an object of about *size* bytes."""
    many, text = size // 16, "a" * size
    spread = [f"11.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(many)]
    group = {names.GROUP_ANNOTATION: "lb/g0"}
    value: Any
    for key in names.SERVICE_ANNOTATIONS:
        notes = {**group, key: text}
        yield key, names.VALIDATE_SERVICE_PATH, {**_SERVICE, "metadata": {"name": "w", "annotations": notes}}
    keys = {f"kavip.io/k{number}": "x" for number in range(many)} | {names.GROUP_ANNOTATION: "lb/g0"}
    yield "unknown keys", names.VALIDATE_SERVICE_PATH, {**_SERVICE, "metadata": {"name": "w", "annotations": keys}}
    ports = [{"port": number & 65535} for number in range(many)]
    for field, value in (("externalIPs", spread), ("ports", ports), ("loadBalancerIP", text), ("selector", keys)):
        spec = {"type": "LoadBalancer", field: value}
        yield field, names.VALIDATE_SERVICE_PATH, {"metadata": {"name": "w", "annotations": group}, "spec": spec}
    reserved = [{"address": address, "service": "a/b"} for address in spread]
    for field, value in (("addresses", spread), ("exclude", spread), ("groups", spread), ("reservations", reserved)):
        spec = {"addresses": ["11.0.0.0/8"], field: value}
        yield field, names.VALIDATE_POOL_PATH, {"metadata": {"name": "x"}, "spec": spec}
    virtual = [{"address": address} for address in spread]
    checks = [{"name": "a", "url": "x"}] * many
    for field, value in (
        *(("blacklistRouterIDs", list(range(many))), ("virtualIPs", virtual), ("checks", checks)),
        *(("verbatimConfig", keys), ("allowVerbatim", spread), ("nodeSelector", keys), ("openshiftClusterName", text)),
    ):
        spec = {"interface": "eth0", field: value}
        yield field, names.VALIDATE_GROUP_PATH, {"metadata": {"name": "x", "namespace": "lb"}, "spec": spec}


def slow(size: int) -> list[str]:
    """One line for each object whose evaluation takes too long."""
    snapshot = cluster(100)
    found = []
    for what, path, value in objects(size):
        request = {"uid": "u", "operation": "CREATE", "kind": {"kind": "X"}, "object": value}
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
        start = process_time()
        msgspec.json.decode(body)
        read = process_time() - start
        start = process_time()
        outcome = evaluate(path, body, snapshot)
        ratio = (process_time() - start) / read
        if ratio > MOST:
            found.append(f"{path} with large {what}: {outcome} in {ratio:.0f} times what reading it takes")
    return found
