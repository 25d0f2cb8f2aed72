"""Objects as manifests."""

from typing import Any

import msgspec


def manifest(obj: Any) -> Any:
    """*obj* without what the API server adds: it is new to a cluster."""
    bare = msgspec.structs.replace(obj.metadata, uid="", resource_version="", creation_timestamp=None)
    return msgspec.structs.replace(obj, metadata=bare)
