"""The bundle and the catalog for OLM, as `make bundle` writes them."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.bundle.csv import Release
from hack.bundle.files import files
from hack.testbed.place import run
from hack.testbed.programs import Programs
from kavip import names
from kavip.admission import registration
from kavip.settings import Settings, unknown_variables
from tests.support import manifests, rights

pytestmark = pytest.mark.chart

IMAGE = "registry.example/kavip@sha256:" + "0" * 64
BUNDLE = "registry.example/kavip-bundle@sha256:" + "1" * 64
SPLIT = {"topology": "split", "certs.mode": "provided", "policies.enabled": "false"}


@pytest.fixture(scope="module")
def built(programs: Programs) -> dict[str, str]:
    """All files."""
    return dict(files(programs["helm"], Release(IMAGE, "kavip.v0.0.9"), bundle_image=BUNDLE))


@pytest.fixture(scope="module")
def csv(built: dict[str, str]) -> dict[str, Any]:
    """The ClusterServiceVersion."""
    found: dict[str, Any] = yaml.safe_load(built["bundle/manifests/kavip.clusterserviceversion.yaml"])
    return found


def test_each_image_is_listed(built: dict[str, str], csv: dict[str, Any]) -> None:
    """A mirror for a disconnected cluster has every image: those of the Deployments and of the groups' pods."""
    assert csv["spec"]["relatedImages"] == [{"name": "kavip", "image": IMAGE}]
    for container in containers(csv):
        assert container["image"] == IMAGE
    given = {each["name"]: each.get("value") for container in containers(csv) for each in container["env"]}
    assert given["KAVIP_IMAGE"] == IMAGE
    assert given["KAVIP_CERTS_SECRET"] == "kavip-webhook-service-cert", "where OLM writes it"
    (described,) = [each for each in catalog(built) if each["schema"] == "olm.bundle"]
    assert described["image"] == BUNDLE
    assert {each["image"] for each in described["relatedImages"]} == {IMAGE, BUNDLE}


def test_permissions_are_the_table_of_rights(csv: dict[str, Any]) -> None:
    """Each account has what the chart grants for the same topology, and the controller may register webhooks."""
    strategy = csv["spec"]["install"]["spec"]
    for account in ("webhook", "controller"):
        granted = set()
        for kind in ("permissions", "clusterPermissions"):
            mine = [each for each in strategy[kind] if each["serviceAccountName"] == f"kavip-{account}"]
            granted |= rights.of_roles(mine)
        hooks = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        more = (
            {("admissionregistration.k8s.io", each, "create") for each in hooks} if account == "controller" else set()
        )
        assert granted == rights.held(account, values=SPLIT) | more


def test_only_webhooks_for_kavips_own_kinds_are_defined(csv: dict[str, Any]) -> None:
    """A definition has no selector: a webhook for Services would refuse all of them while kavip is down."""
    defined = csv["spec"]["webhookdefinitions"]
    groups = {group for each in defined for rule in each["rules"] for group in rule["apiGroups"]}
    assert groups == {names.KAVIP_GROUP, "redhatcop.redhat.io"}
    registered = [*registration.MUTATORS, *registration.VALIDATORS]
    assert {each["webhookPath"] for each in defined} == {each.path for each in registered if not each.is_of_services}
    for each in defined:
        assert (each["deploymentName"], each["containerPort"]) == ("kavip-webhook", 443)
        assert each["targetPort"] in [port["containerPort"] for port in containers(csv, "kavip-webhook")[0]["ports"]]
    names_of_hooks = [each["generateName"] for each in defined]
    assert len({*names_of_hooks}) == len(names_of_hooks), "OLM finds them by this name"


def test_settings_are_accepted(csv: dict[str, Any]) -> None:
    """Each variable is a setting, and kavip accepts all of them together."""
    for container in containers(csv):
        assert len({each["name"] for each in container["env"]}) == len(container["env"])
        given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        assert unknown_variables(given, {f"KAVIP_{each.name.upper()}" for each in fields(Settings)}) == []
        known = {f"KAVIP_{each.name.upper()}": each.name for each in fields(Settings) if isinstance(each.default, str)}
        settings = Settings(**{known[name]: value for name, value in given.items() if name in known})
        assert (settings.olm_owner, settings.certs_mode) == (csv["metadata"]["name"], "provided")
        assert settings.webhook_service == "kavip-webhook-service"


def test_pods_have_only_fields_that_the_definition_has_long(csv: dict[str, Any]) -> None:
    """The definition of ClusterServiceVersions has the fields of an older Kubernetes, and drops others silently."""
    for container in containers(csv):
        assert "lifecycle" not in container
        assert {each for each in container if each.endswith("Probe")} >= {"readinessProbe", "livenessProbe"}


def test_definitions_and_samples_are_those_of_the_repository(built: dict[str, str], csv: dict[str, Any]) -> None:
    """The definitions are copies, and the console offers the samples."""
    for path in manifests.CRDS:
        assert built[f"bundle/manifests/{path.name}"] == path.read_text()
    owned = {each["name"] for each in csv["spec"]["customresourcedefinitions"]["owned"]}
    assert owned == {each["metadata"]["name"] for each in manifests.objects(*manifests.CRDS)}
    samples = json.loads(csv["metadata"]["annotations"]["alm-examples"])
    assert {each["kind"] for each in samples} == {"VIPPool", "KeepalivedGroup"}


def test_descriptors_name_fields(csv: dict[str, Any]) -> None:
    """Each path that the console shows exists in the definition."""
    schemas = {each["metadata"]["name"]: each for each in manifests.objects(*manifests.CRDS)}
    for owned in csv["spec"]["customresourcedefinitions"]["owned"]:
        properties = schemas[owned["name"]]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        for part in ("spec", "status"):
            paths = [each["path"] for each in owned.get(f"{part}Descriptors", [])]
            assert {*paths} <= {*properties[part]["properties"]}


def test_olm_finds_no_fault(built: dict[str, str], programs: Programs, tmp_path: Path) -> None:
    """Its own code and the rules of OperatorHub report neither an error nor a warning; a fault is an error."""
    for path, text in built.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    command = [programs["olm"], str(tmp_path / "bundle"), str(tmp_path / "catalog")]
    assert run(command).stdout == ""
    csv = tmp_path / "bundle/manifests/kavip.clusterserviceversion.yaml"
    csv.write_text(csv.read_text().replace("categories: Networking", "categories: Nonsense"))
    assert '"Nonsense" is not in the set of standard categories' in run(command, check=False).stdout


def test_the_rules_of_scorecard_hold(csv: dict[str, Any]) -> None:
    """Scorecard wants resources for each kind, and a descriptor for each field that an example sets."""
    kinds = {each["kind"]: each for each in csv["spec"]["customresourcedefinitions"]["owned"]}
    assert all(each["resources"] for each in kinds.values())
    for example in json.loads(csv["metadata"]["annotations"]["alm-examples"]):
        described = {each["path"] for each in kinds[example["kind"]]["specDescriptors"]}
        assert {*example["spec"]} <= described


def test_the_catalog_leads_to_the_bundle(built: dict[str, str], csv: dict[str, Any]) -> None:
    """One package with one channel, whose head replaces the version before."""
    package, channel, bundle = catalog(built)
    name = csv["metadata"]["name"]
    assert package["defaultChannel"] == channel["name"]
    assert channel["entries"] == [{"name": name, "replaces": "kavip.v0.0.9"}]
    assert csv["spec"]["replaces"] == "kavip.v0.0.9"
    assert bundle["name"] == name
    annotations = yaml.safe_load(built["bundle/metadata/annotations.yaml"])["annotations"]
    assert annotations["operators.operatorframework.io.bundle.channel.default.v1"] == channel["name"]
    for key, value in annotations.items():
        assert f"LABEL {key}={value}\n" in built["bundle.Dockerfile"]


def test_the_same_input_gives_the_same_files(built: dict[str, str], programs: Programs) -> None:
    """Nothing depends on the time or on the machine."""
    assert files(programs["helm"], Release(IMAGE, "kavip.v0.0.9"), bundle_image=BUNDLE) == built


@pytest.mark.parametrize("folder", ["operatorhub", "olm/policies"])
def test_folders_for_kubectl(programs: Programs, folder: str) -> None:
    """`kubectl apply -k` takes them; the policies are those of the chart, but for the one about webhooks."""
    found = manifests.parsed(run([programs["kubectl"], "kustomize", str(manifests.CONFIG / folder)]).stdout)
    if folder == "operatorhub":
        subscription = manifests.only(found, "Subscription")
        assert (
            subscription["spec"]["sourceNamespace"] == manifests.only(found, "CatalogSource")["metadata"]["namespace"]
        )
        assert manifests.only(found, "OperatorGroup")["spec"] == {}, "all namespaces"
    else:
        all_of_them = manifests.objects(manifests.CONFIG / "policies" / "policies.yaml")
        left_out = {each["metadata"]["name"] for each in all_of_them if each not in found}
        added = {each["metadata"]["name"] for each in found if each not in all_of_them}
        assert (left_out, added) == ({"kavip-webhooks"}, {"kavip-service-webhooks"})


# --- helpers ----------------------------------------------------------------------------------------------------------
def containers(csv: dict[str, Any], deployment: str = "") -> list[dict[str, Any]]:
    """The container of each Deployment."""
    return [
        container
        for each in csv["spec"]["install"]["spec"]["deployments"]
        if deployment in ("", each["name"])
        for container in each["spec"]["template"]["spec"]["containers"]
    ]


def catalog(built: dict[str, str]) -> list[dict[str, Any]]:
    """The documents of the catalog."""
    return [dict(each) for each in yaml.safe_load_all(built["catalog/kavip/catalog.yaml"])]
