"""
The VRIDs that an OpenShift IPI cluster uses on its segment, computed from its name.

OpenShift's on-prem keepalived pods derive them with a Fletcher checksum of the cluster's name
(openshift/baremetal-runtimecfg, ``pkg/utils``); IPv4 and IPv6 use the same VRIDs. Up to OpenShift 4.7 there was a
third one, for DNS.

A name that a group gives (``spec.openshiftClusterName``) bars these VRIDs. Without one, kavip finds the name of its own
cluster in the Infrastructure ``cluster``. These VRIDs bind new instances only, in the segment of the nodes.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kavip.api.cluster import Infrastructure, PlatformStatus
from kavip.api.group import KeepalivedGroup
from kavip.errors import BadInput
from kavip.names import DEFAULT_SEGMENT

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_MODULUS: Final = 15


class OpenShiftIDs(NamedTuple):
    """The VRIDs of one cluster."""

    api: int
    ingress: int
    dns: int


def router_ids(cluster_name: str, field: str = "") -> OpenShiftIDs:
    """
    The VRIDs of the cluster *cluster_name*.

    Raises :class:`BadInput` naming *field*.
    """
    if not _NAME.fullmatch(cluster_name):
        remedy = "want the name of an OpenShift cluster: lower-case letters, digits, '-' and '.'"
        raise BadInput(field, cluster_name, remedy)
    return OpenShiftIDs(*(_fletcher8(f"{cluster_name}-{role}") + 1 for role in ("api", "ingress", "dns")))


def cluster_name(infrastructure: Infrastructure | None) -> str:
    """
    The name of the cluster that *infrastructure* describes, if OpenShift runs keepalived in it; "" otherwise.

    It is the second label of ``https://api-int.NAME.DOMAIN:6443`` (openshift/api, ``config/v1``).
    """
    if infrastructure is None or not _has_vips(infrastructure):
        return ""
    try:
        host = urlsplit(infrastructure.status.api_server_internal_uri).hostname or ""
    except ValueError:  # a malformed URI
        return ""
    first, *rest = host.split(".")
    return rest[0] if first == "api-int" and len(rest) > 1 and _NAME.fullmatch(rest[0]) else ""


def platform_ids(infrastructure: Infrastructure | None, group: KeepalivedGroup) -> frozenset[int]:
    """
    The VRIDs that OpenShift's keepalived uses on the segment of *group*.

    It runs on the network of the nodes; a segment with a name of the user's own is another network.
    """
    name = cluster_name(infrastructure) if group.spec.segment in (None, "", DEFAULT_SEGMENT) else ""
    return frozenset(router_ids(name)) if name else frozenset()


def _has_vips(infrastructure: Infrastructure) -> bool:
    status = infrastructure.status.platform_status or PlatformStatus()
    for each in (status.baremetal, status.vsphere, status.openstack, status.nutanix, status.ovirt):
        if each is not None and (each.api_server_internal_ips or each.api_server_internal_ip):
            return each.load_balancer is None or each.load_balancer.type != "UserManaged"
    return False


def _fletcher8(text: str) -> int:
    low = high = 0
    for byte in text.encode():
        low = (low + byte) % _MODULUS
        high = (high + low) % _MODULUS
    return high << 4 | low
