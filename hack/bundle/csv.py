"""The ClusterServiceVersion: how OLM installs kavip, and what the console shows of it."""

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

import kavip
from hack.bundle import rendered
from hack.bundle.rendered import Manifest
from kavip import names
from kavip.admission import registration
from kavip.admission.registration import RegisteredWebhook

PACKAGE: Final = "kavip"
FOLDER: Final = rendered.ROOT / "config" / "olm"
SAMPLES: Final = tuple(rendered.ROOT / "config" / "samples" / f"{name}.yaml" for name in ("vippool", "keepalivedgroup"))
_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class Release:
    """What the caller chooses: the *image* of kavip, the name of the version that this one *replaces*, a date."""

    image: str
    replaces: str = ""
    created_at: str = ""

    @property
    def name(self) -> str:
        """The name of the ClusterServiceVersion."""
        return f"{PACKAGE}.v{kavip.__version__}"


def csv(release: Release, objects: Sequence[Manifest]) -> Manifest:
    """The ClusterServiceVersion of *release* with the *objects* of the chart."""
    base: Manifest = yaml.safe_load((FOLDER / "base.yaml").read_text())
    annotations = {
        **base["metadata"]["annotations"],
        "alm-examples": json.dumps(list(_samples()), indent=2),
        "containerImage": release.image,
        **({"createdAt": release.created_at} if release.created_at else {}),
    }
    platforms = ("os.linux", "arch.amd64", "arch.arm64")
    labels = {f"operatorframework.io/{each}": "supported" for each in platforms}
    spec = {
        **base["spec"],
        "version": kavip.__version__,
        **({"replaces": release.replaces} if release.replaces else {}),
        "icon": [{"base64data": b64encode(icon()).decode(), "mediatype": "image/svg+xml"}],
        "install": {"strategy": "deployment", "spec": install(release, objects)},
        "webhookdefinitions": list(webhook_definitions()),
        "relatedImages": [{"name": PACKAGE, "image": release.image}],
    }
    metadata = {"name": release.name, "namespace": "placeholder", "annotations": annotations, "labels": labels}
    return {**base, "metadata": metadata, "spec": spec}


def icon() -> bytes:
    """The icon, which the catalog shows too."""
    return (FOLDER / "icon.svg").read_bytes().strip()


def _samples() -> Iterator[Manifest]:
    for path in SAMPLES:
        yield from yaml.safe_load_all(Path(path).read_text())


def install(release: Release, objects: Sequence[Manifest]) -> Manifest:
    """The install strategy: Deployments, and the rights of their accounts."""
    accounts = [each["metadata"]["name"] for each in rendered.of_kind(objects, "ServiceAccount")]
    cluster = {each["metadata"]["name"]: each["rules"] for each in rendered.of_kind(objects, "ClusterRole")}
    release_roles = {each["metadata"]["name"]: each["rules"] for each in rendered.of_kind(objects, "Role")}
    return {
        "deployments": [_deployment(release, each) for each in rendered.of_kind(objects, "Deployment")],
        "clusterPermissions": [
            {
                "serviceAccountName": name,
                "rules": [*cluster[name], *rendered.rules_for_olm(name.removeprefix("kavip-"))],
            }
            for name in accounts
        ],
        "permissions": [{"serviceAccountName": name, "rules": release_roles[name]} for name in accounts],
    }


def _deployment(release: Release, body: Manifest) -> Manifest:
    spec = json.loads(json.dumps(body["spec"]))
    (container,) = spec["template"]["spec"]["containers"]
    own = {
        "KAVIP_OLM_OWNER": release.name,
        "KAVIP_WEBHOOK_SERVICE": rendered.SERVICE,
        "KAVIP_EXTERNAL_IPS_SCOPE": "managed",
    }
    container["env"] = [each for each in container["env"] if each["name"] not in own]
    container["env"] += [{"name": name, "value": value} for name, value in own.items()]
    container.pop("lifecycle", None)  # the definition of many OLM versions has no lifecycle.preStop.sleep, and drops it
    return {"name": body["metadata"]["name"], "label": body["metadata"]["labels"], "spec": spec}


def webhook_definitions() -> Iterator[Manifest]:
    """
    The webhooks for kavip's own kinds.

    A definition has neither a namespace selector nor match conditions: with ``Fail``, one for Services would refuse
    every Service while kavip is down. kavip registers those itself.
    """
    defaults = registration.DEFAULTS
    for kind, webhooks, policy, seconds in (
        ("Mutating", registration.MUTATORS, defaults.mutating, registration.MUTATE_TIMEOUT),
        ("Validating", registration.VALIDATORS, defaults.validating, registration.VALIDATE_TIMEOUT),
    ):
        for webhook in webhooks:
            if not webhook.is_of_services:
                yield _definition(webhook, kind=kind, policy=policy, seconds=seconds)


def _definition(webhook: RegisteredWebhook, *, kind: str, policy: str, seconds: int) -> Manifest:
    found: dict[str, Any] = {
        "generateName": f"{webhook.name}.{names.KAVIP_GROUP}",
        "type": f"{kind}AdmissionWebhook",
        "deploymentName": rendered.DEPLOYMENT,
        "containerPort": _PORT,
        "targetPort": names.WEBHOOK_PORT,
        "webhookPath": webhook.path,
        "rules": [webhook.rule],
        "failurePolicy": "Ignore" if webhook.warns_only else policy,
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": registration.MUTATE_TIMEOUT if webhook.warns_only else seconds,
        "admissionReviewVersions": ["v1"],
    }
    return {**found, **({"reinvocationPolicy": "Never"} if kind == "Mutating" else {})}
