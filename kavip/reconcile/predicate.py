"""
Whether what the watch shows is a status write of ours and nothing else.

Then there is nothing to decide: a plan applied to its own result is empty. Whatever else the same event brings, an edit
that came between or a field that the server changed, makes it no echo, and the Service is looked at as ever.
"""

from collections.abc import Mapping
from typing import Any

from kavip.api import conditions
from kavip.api.service import Service
from kavip.reconcile.plan import StatusPatch


def is_echo(sent: StatusPatch | None, before: Service | None, after: Service | None) -> bool:
    """Whether *sent*, and nothing else, made *before* into *after*."""
    if sent is None or before is None or after is None:
        return False
    if sent.body["metadata"]["resourceVersion"] != before.metadata.resource_version:
        return False
    return before.spec == after.spec and _is_same_but_version(before, after) and _carries(after, before, sent.body)


def _is_same_but_version(before: Service, after: Service) -> bool:
    one, other = before.metadata, after.metadata
    return (
        one.uid == other.uid
        and one.generation == other.generation
        and one.deletion_timestamp == other.deletion_timestamp
        and one.annotations == other.annotations
        and one.labels == other.labels
    )


def _carries(after: Service, before: Service, body: Mapping[str, Any]) -> bool:
    """Whether the status of *after* is that of *before* with the patch *body*."""
    status = body["status"]
    if "loadBalancer" in status:
        entries = ({"ip": each.ip, "ipMode": each.ip_mode} for each in after.status.load_balancer.ingress or ())
        if list(entries) != (status["loadBalancer"]["ingress"] or []):
            return False
    elif after.status.load_balancer != before.status.load_balancer:
        return False
    wanted = {each.type: conditions.wire(each) for each in before.status.conditions or ()}
    wanted |= {each["type"]: each for each in status.get("conditions", ())}
    return wanted == {each.type: conditions.wire(each) for each in after.status.conditions or ()}
