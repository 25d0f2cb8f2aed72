"""
What the Operator Lifecycle Manager (OLM) does for a kavip that it runs.

OLM issues the certificate of the webhook, and registers the webhooks for groups and pools. kavip registers those for
Services, with the labels by which OLM deletes what belongs to a ClusterServiceVersion: when that is deleted, no webhook
may stay that refuses Services.
"""

from typing import Final

OWNER_LABEL: Final = "olm.owner"
_KIND: Final = "ClusterServiceVersion"


def owner_labels(owner: str, namespace: str) -> dict[str, str]:
    """The labels of what belongs to the ClusterServiceVersion *owner* in *namespace*."""
    return {OWNER_LABEL: owner, f"{OWNER_LABEL}.kind": _KIND, f"{OWNER_LABEL}.namespace": namespace}
