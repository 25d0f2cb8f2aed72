"""charts/kavip/values.yaml and its schema, and versions and pins that must agree."""

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

import kavip
from hack import chartpage
from kavip.settings import Settings
from tests.support import manifests

BY_HELPER = ("KAVIP_IMAGE", "KAVIP_METRICS_CERT_PATH", "KAVIP_PULL_SECRETS")


class TestValues:
    """charts/kavip/values.yaml and its schema."""

    SCHEMA = json.loads((manifests.CHART / "values.schema.json").read_text())
    VALUES = manifests.objects(manifests.CHART / "values.yaml")[0]

    def test_the_schema_is_closed_and_described(self) -> None:
        """Every object with named values refuses others, and every value has a description."""
        faults = []
        for path, schema in described(self.SCHEMA, ""):
            if "properties" in schema and schema.get("additionalProperties") is not False:
                faults.append(f"{path}: open")
            if path and not schema.get("description"):
                faults.append(f"{path}: no description")
        assert not faults

    def test_every_value_has_a_default(self) -> None:
        """values.yaml has exactly the values of the schema."""
        assert set(leaves(self.VALUES)) == set(named(self.SCHEMA, "")) - {"global"}

    @pytest.mark.parametrize(
        ("path", "setting"),
        [
            ("ipam", "ipam"),
            ("certs.mode", "certs_mode"),
            ("externalIPs.scope", "external_ips_scope"),
            ("webhook.allowMissingGroup", "allow_missing_group"),
            ("logLevel", "log_level"),
            ("logFormat", "log_format"),
        ],
    )
    def test_choices_are_those_of_the_program(self, path: str, setting: str) -> None:
        """The schema has the choices of the program."""
        schema = self.SCHEMA
        for word in path.split("."):
            schema = schema["properties"][word]
        choices = {each.name: each.metadata["choices"] for each in dataclasses.fields(Settings)}
        assert schema["enum"] == list(choices[setting])

    def test_the_template_sets_variables_from_the_values_that_the_schema_names(self) -> None:
        """So the reference of settings names the right value; some come by a helper of the chart."""
        template = (manifests.CHART / "templates" / "deployment.yaml").read_text()
        lines = re.findall(r"- name: (KAVIP_\w+)\n\s+value: (.*)", template)
        values = dict(chartpage.by_variable())
        assert {name: found[1] for name, line in lines if (found := re.search(r"\.Values\.([\w.]+)", line))} == {
            name: path for name, path in values.items() if name not in BY_HELPER
        }
        helpers = {name for name, line in lines if "include" in line}
        assert helpers == set(BY_HELPER) and helpers <= set(values)

    def test_pins_agree(self) -> None:
        """Development and tests use the versions of the image, and no package index is named."""
        texts = [(manifests.ROOT / "requirements" / name).read_text() for name in ("run.txt", "dev.txt")]
        run, dev = (dict(re.findall(r"^([\w.-]+)==(\S+) \\$", text, re.MULTILINE)) for text in texts)
        assert run
        assert run.items() <= dev.items()
        assert not any("://" in text for text in texts)

    def test_versions_agree(self) -> None:
        """Package, program, chart and image have one version."""
        chart = manifests.objects(manifests.CHART / "Chart.yaml")[0]
        project = tomllib.loads((manifests.ROOT / "pyproject.toml").read_text())["project"]
        manager = manifests.objects(manifests.CONFIG / "manager" / "manager.yaml")
        pods = [each["spec"]["template"]["spec"] for each in manager if each["kind"] == "Deployment"]
        tags = {pod["containers"][0]["image"].rpartition(":")[2] for pod in pods}
        found = {project["version"], chart["version"], chart["appVersion"], *tags}
        assert found == {kavip.__version__}


def described(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every value of a JSON schema with its path."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from described(inner, f"{path}.{name}".lstrip("."))


def named(schema: dict[str, Any], path: str) -> Iterator[str]:
    """The paths of the values without nested values."""
    if "properties" not in schema:
        yield path
    for name, inner in schema.get("properties", {}).items():
        yield from named(inner, f"{path}.{name}".lstrip("."))


OPAQUE = {"resources", "webhook.resources", "controller.resources", "dashboards.labels"}
"""Values with keys that users choose."""


def leaves(values: dict[str, Any], path: str = "") -> Iterator[str]:
    """The paths of the values in values.yaml."""
    for name, value in values.items():
        inner = f"{path}.{name}".lstrip(".")
        if isinstance(value, dict) and value and inner not in OPAQUE:
            yield from leaves(value, inner)
        else:
            yield inner
