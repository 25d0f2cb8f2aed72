"""The files of the bundle and of the catalog, by path."""

from collections.abc import Mapping, Sequence
from typing import Final

import yaml

from hack.bundle import rendered
from hack.bundle.catalog import CHANNEL, catalog
from hack.bundle.csv import FOLDER, PACKAGE, Release, csv
from hack.bundle.rendered import Manifest

CRDS: Final = rendered.ROOT / "config" / "crd" / "bases"
_OPM: Final = "quay.io/operator-framework/opm:latest"
_ANNOTATIONS: Final = {
    "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
    "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
    "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
    "operators.operatorframework.io.bundle.package.v1": PACKAGE,
    "operators.operatorframework.io.bundle.channels.v1": CHANNEL,
    "operators.operatorframework.io.bundle.channel.default.v1": CHANNEL,
    "operators.operatorframework.io.test.mediatype.v1": "scorecard+v1",
    "operators.operatorframework.io.test.config.v1": "tests/scorecard/",
    "com.redhat.openshift.versions": "v4.17",
}
_BESIDE: Final = ("PodDisruptionBudget",)
"""Kinds of the chart that a bundle may have and OLM does not make itself."""


def files(helm: str, release: Release, *, bundle_image: str) -> Mapping[str, str]:
    """All files."""
    objects = rendered.objects(helm, image=release.image)
    definitions = {path.name: path.read_text() for path in sorted(CRDS.glob("*.yaml"))}
    version = csv(release, objects)
    beside = [each for kind in _BESIDE for each in rendered.of_kind(objects, kind)]
    beside += rendered.of_kind(objects, "ClusterRole", prefix="kavip-view")
    crds = [yaml.safe_load(text) for text in definitions.values()]
    documents = catalog(release, version, crds, bundle_image=bundle_image)
    found = {
        "bundle.Dockerfile": _dockerfile(),
        f"bundle/manifests/{PACKAGE}.clusterserviceversion.yaml": _yaml([version]),
        **{f"bundle/manifests/{name}": text for name, text in definitions.items()},
        **{f"bundle/manifests/{_file_name(each)}": _yaml([each]) for each in beside},
        "bundle/metadata/annotations.yaml": _yaml([{"annotations": _ANNOTATIONS}]),
        "bundle/tests/scorecard/config.yaml": (FOLDER / "scorecard.yaml").read_text(),
        f"catalog/{PACKAGE}/catalog.yaml": _yaml(documents),
        "catalog.Dockerfile": _CATALOG,
    }
    return dict(sorted(found.items()))


def _file_name(body: Manifest) -> str:
    return f"{body['metadata']['name']}.{body['kind'].lower()}.yaml"


class _Dumper(yaml.SafeDumper):
    """YAML with texts of several lines as blocks, and without aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _yaml(documents: Sequence[Manifest]) -> str:
    several = len(documents) > 1
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120, explicit_start=several)


def _dockerfile() -> str:
    labels = "".join(f"LABEL {key}={value}\n" for key, value in _ANNOTATIONS.items())
    copies = "".join(f"COPY bundle/{name} /{name}/\n" for name in ("manifests", "metadata", "tests/scorecard"))
    return f"FROM scratch\n{labels}{copies}"


_CATALOG: Final = f"""\
FROM {_OPM}
LABEL operators.operatorframework.io.index.configs.v1=/configs
COPY catalog /configs
RUN ["/bin/opm", "serve", "/configs", "--cache-dir=/tmp/cache", "--cache-only"]
ENTRYPOINT ["/bin/opm"]
CMD ["serve", "/configs", "--cache-dir=/tmp/cache"]
"""
