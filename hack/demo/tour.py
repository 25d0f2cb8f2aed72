"""
The tour of refusals: chosen cases of the table (``tests/refusals``), as manifests that a user applies.

The cases need the objects of the table. A user cannot write a status, so addresses in a status of the table are
requested by annotation here, and groups that are only referred to have no nodes.
"""

from collections.abc import Iterator
from typing import Any, Final

from hack import refusals
from hack.refusals import Case, Manifest
from kavip import names

CHOSEN: Final = (
    "group_exists: a group that does not exist",
    "group_reference_is_valid: a group without its namespace",
    "namespace_is_allowed: a namespace that the group does not serve",
    "group_exists: several mistakes at once",
    "verbatim_config_is_safe: verbatimconfig with a keyword that runs programs",
    "router_ids_are_available: a group without a free virtual router ID",
    "addresses_are_available: a pool that does not exist",
    "addresses_are_available: an address outside every pool",
    "addresses_are_available: an address that another Service uses",
    "addresses_are_available: an address that is reserved for another",
    "addresses_are_available: an address of a family that the Service does not have",
    "default_group_is_unique: a second default group",
    "router_ids_are_available: a blacklist that leaves too few VRIDs",
    "pool_spec_is_valid: a pool that overlaps another",
    "pool_spec_is_valid: an exclusion outside the pool",
)
SERVICES: Final = ("shop/first", "shop/second")
_IN_USE: Final = "edge"  # the group that has nodes
_PORT: Final = 9651  # not the first: keepalived-operator, at the end of the demo, uses that one


def cases() -> list[Case]:
    """The chosen cases, in the order of the demo."""
    known = {str(case): case for case in refusals.cases()}
    return [known[name] for name in CHOSEN]


def cluster() -> list[Manifest]:
    """The objects that the cases refer to, with the namespace of the groups."""
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lb"}}, *_written()]


def _written() -> Iterator[Manifest]:
    for found in refusals.cluster():
        manifest: dict[str, Any] = {key: value for key, value in found.items() if key != "status"}
        metadata = {key: value for key, value in found["metadata"].items() if key != "creationTimestamp"}
        match found["kind"]:
            case names.NODE | names.SERVICE_CIDR | names.ENDPOINT_SLICE:  # every cluster has its own
                continue
            case names.KEEPALIVED_GROUP if metadata["name"] != _IN_USE:
                manifest["spec"] = {**found["spec"], "nodeSelector": {"kavip.demo/none": "true"}}
            case names.KEEPALIVED_GROUP:
                manifest["spec"] = {**found["spec"], "metricsPort": _PORT}
            case names.SERVICE:
                held = ",".join(each["ip"] for each in _ingress(found))
                requested = {names.ADDRESSES_ANNOTATION: held} if held else {}
                metadata["annotations"] = {**metadata["annotations"], **requested}
        yield {**manifest, "metadata": metadata}


def _ingress(service: Manifest) -> list[dict[str, str]]:
    found: list[dict[str, str]] = service.get("status", {}).get("loadBalancer", {}).get("ingress", [])
    return found
