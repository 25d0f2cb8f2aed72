"""The file-based catalog: the package, its channel, and the bundle as ``opm render`` would describe it."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import kavip
from hack.bundle.csv import PACKAGE, Release, icon
from hack.bundle.rendered import Manifest

CHANNEL: Final = "stable"
_SHOWN: Final = (
    "description",
    "displayName",
    "installModes",
    "keywords",
    "links",
    "maturity",
    "minKubeVersion",
    "provider",
)


def catalog(release: Release, csv: Manifest, definitions: Sequence[Manifest], *, bundle_image: str) -> list[Manifest]:
    """The documents of the catalog."""
    package = {
        "schema": "olm.package",
        "name": PACKAGE,
        "defaultChannel": CHANNEL,
        "description": csv["metadata"]["annotations"]["description"],
        "icon": {"base64data": b64encode(icon()).decode(), "mediatype": "image/svg+xml"},
    }
    entry = {"name": release.name, **({"replaces": release.replaces} if release.replaces else {})}
    channel = {"schema": "olm.channel", "name": CHANNEL, "package": PACKAGE, "entries": [entry]}
    bundle = {
        "schema": "olm.bundle",
        "name": release.name,
        "package": PACKAGE,
        "image": bundle_image,
        "properties": _properties(csv, definitions),
        "relatedImages": [*csv["spec"]["relatedImages"], {"name": "", "image": bundle_image}],
    }
    return [package, channel, bundle]


def _properties(csv: Manifest, definitions: Sequence[Manifest]) -> list[Manifest]:
    kinds = [
        {"group": each["spec"]["group"], "kind": each["spec"]["names"]["kind"], "version": version["name"]}
        for each in definitions
        for version in each["spec"]["versions"]
    ]
    spec = csv["spec"]
    shown = {
        "annotations": csv["metadata"]["annotations"],
        "apiServiceDefinitions": {},
        "crdDescriptions": spec["customresourcedefinitions"],
        "labels": csv["metadata"]["labels"],
        **{key: spec[key] for key in _SHOWN},
    }
    return [
        *({"type": "olm.gvk", "value": each} for each in kinds),
        {"type": "olm.package", "value": {"packageName": PACKAGE, "version": kavip.__version__}},
        {"type": "olm.csv.metadata", "value": shown},
    ]
