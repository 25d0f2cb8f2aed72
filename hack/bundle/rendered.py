"""What the chart has for a kavip that OLM runs: its objects, with the values that fit OLM."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from hack.testbed.place import run

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "charts" / "kavip"
NAMESPACE: Final = "kavip"
DEPLOYMENT: Final = "kavip-webhook"
SERVICE: Final = f"{DEPLOYMENT}-service"
"""The Service of the webhook: OLM calls it so."""
SECRET: Final = f"{SERVICE}-cert"
"""The Secret in which OLM writes the certificate."""

_IMAGE: Final = "image.olm"
_VALUES: Final = (
    "topology=split",
    "certs.mode=provided",
    f"certs.secretName={SECRET}",
    f"image.repository={_IMAGE}",
    "image.tag=bundle",
    "image.digest=",  # a release writes its own into the chart
    "openshift.enabled=true",  # pods without a user id of their own
    "policies.enabled=false",
)
_OF_HELM: Final = ("app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart")

Manifest = dict[str, Any]


def objects(helm: str, *, image: str) -> list[Manifest]:
    """The objects of the chart with *image*, without what only helm needs."""
    flags = [f"--set={each}" for each in _VALUES]
    text = run([helm, "template", "kavip", str(CHART), f"--namespace={NAMESPACE}", *flags]).stdout
    found = yaml.safe_load_all(text.replace(f"{_IMAGE}:bundle", image))
    return [_bare(each) for each in found if each and not _is_hook(each)]


def of_kind(found: Iterable[Manifest], kind: str, *, prefix: str = "") -> list[Manifest]:
    """Those of *found* with *kind*, by name."""
    some = [each for each in found if each["kind"] == kind and each["metadata"]["name"].startswith(prefix)]
    return sorted(some, key=lambda each: str(each["metadata"]["name"]))


def rules_for_olm(account: str) -> Sequence[Manifest]:
    """The rules of *account* in the table of rights that only the bundle has."""
    table = yaml.safe_load((CHART / "files" / "rights.yaml").read_text())
    kept = ("apiGroups", "resources", "resourceNames", "verbs")
    return [
        {key: each[key] for key in kept if key in each}
        for each in table
        if each.get("only") == "olm" and account in each["accounts"]
    ]


def _is_hook(body: Manifest) -> bool:
    return "helm.sh/hook" in body["metadata"].get("annotations", {})


def _bare(body: Manifest) -> Manifest:
    """*body* without its namespace, which OLM chooses, and without labels of helm."""
    metadata = {key: value for key, value in body["metadata"].items() if key not in ("namespace", "annotations")}
    metadata["labels"] = {key: value for key, value in metadata.get("labels", {}).items() if key not in _OF_HELM}
    return {**body, "metadata": metadata}
