"""
The VRIDs that an OpenShift IPI cluster uses on its segment, computed from its name.

OpenShift's on-prem keepalived pods derive them with a Fletcher checksum of the cluster's name
(openshift/baremetal-runtimecfg, ``pkg/utils``); IPv4 and IPv6 use the same VRIDs. Up to OpenShift 4.7 there was a
third one, for DNS.
"""

import re
from typing import Final, NamedTuple

from kavip.errors import BadInput

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


def _fletcher8(text: str) -> int:
    low = high = 0
    for byte in text.encode():
        low = (low + byte) % _MODULUS
        high = (high + low) % _MODULUS
    return high << 4 | low
