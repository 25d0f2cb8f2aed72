"""The manifests of this repository as data."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"
CHART = ROOT / "charts" / "kavip"
CRDS = sorted((CONFIG / "crd" / "bases").glob("*.yaml"))
SAMPLES = [CONFIG / "samples" / name for name in ("vippool.yaml", "keepalivedgroup.yaml", "services.yaml")]
FOREIGN_CRDS = Path(__file__).parent / "foreign-crds.yaml"  # of OpenShift and other operators
NAMESPACE = "kavip"  # the namespace of config/

Object = dict[str, Any]


def parsed(text: str) -> list[Object]:
    """The objects of a YAML stream."""
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


def objects(*paths: Path) -> list[Object]:
    """The objects of YAML files."""
    return [each for path in paths for each in parsed(path.read_text())]


def only(found: Iterable[Object], kind: str, name: str = "") -> Object:
    """The one object of *kind*, and of *name* if that is given."""
    (match,) = [each for each in found if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    return match
