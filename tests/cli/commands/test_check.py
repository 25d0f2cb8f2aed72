"""``kavip check`` as a process, as CI runs it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hack import refusals
from hack.refusals import Case
from kavip.admission.verdict import message_of
from kavip.api.review import Operation
from kavip.cli.sources import files
from kavip.cli.views import planoutput, simulate
from tests.support.manifests import ROOT, SAMPLES

GROUP = "keepalived-operator.redhat-cop.io/keepalivedgroup"
GROUPS = """
apiVersion: redhatcop.redhat.io/v1alpha1
kind: KeepalivedGroup
metadata: {name: edge, namespace: lb}
spec: {interface: eth0, allowedNamespaces: {matchLabels: {kubernetes.io/metadata.name: shop}}}
"""
POOLS = """
apiVersion: kavip.io/v1alpha1
kind: VIPPool
metadata: {name: edge}
spec: {addresses: [192.0.2.128/27], namespaceSelector: {matchLabels: {tier: front}}}
"""
SHOP = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {tier: front}}\n"
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"


def service(name: str, *, namespace: str = "shop", **annotations: str) -> dict[str, Any]:
    """A LoadBalancer Service of group lb/edge unless *annotations*, their keys in full, say otherwise."""
    metadata = {"name": name, "namespace": namespace, "annotations": {GROUP: "lb/edge", **annotations}}
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def check(*arguments: object, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run ``kavip check`` from the root of the repository."""
    command = [sys.executable, "-m", "kavip", "check", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)


@pytest.mark.slow
def test_each_refusal_is_one_line_with_its_place(tmp_path: Path) -> None:
    """Several files and standard input are read; the exit status is 1."""
    (tmp_path / "cluster.yaml").write_text("---\n".join((GROUPS, POOLS, SHOP, NODE)))
    web = tmp_path / "web.yaml"
    web.write_text(f"# the shop\n{json.dumps(service('web', **{'kavip.io/pool': 'egde', GROUP: 'lb/egde'}))}\n")
    done = check("-f", tmp_path / "cluster.yaml", "-f", web, "-f", "-", given=json.dumps(service("api")))
    assert done.returncode == 1
    assert done.stderr == ""
    pool, group = sorted(done.stdout.splitlines(), key=lambda line: "keepalivedgroup" in line)
    assert pool.startswith(f"{web}:2: Service shop/web: refused: metadata.annotations[kavip.io/pool]: ")
    assert 'group "lb/egde" does not exist; did you mean "lb/edge"?' in group


@pytest.mark.slow
def test_json_is_for_programs(tmp_path: Path) -> None:
    """One sorted object is printed, the same for any order of the input."""
    (tmp_path / "cluster.yaml").write_text("---\n".join((GROUPS, POOLS, SHOP, NODE)))
    bad = {"kavip.io/pool": "other", "keepalived-operator.redhat-cop.io/spreadvips": "yes"}
    subjects = [service("web", **bad), service("good"), service("api", namespace="dark")]
    given = [{"apiVersion": "v1", "kind": "List", "items": items} for items in (subjects, subjects[::-1])]
    first, second = (check("-f", tmp_path, "-f", "-", "-o", "json", given=json.dumps(each, indent=1)) for each in given)
    assert first.returncode == 1
    assert first.stdout == second.stdout
    api, web = json.loads(first.stdout)["refused"]
    assert set(json.loads(first.stdout)) == {"refused"}
    assert set(web) == {"kind", "namespace", "name", "causes", "warnings"}
    assert [(each["field"], each["reason"]) for each in web["causes"]] == [
        ("metadata.annotations[kavip.io/pool]", "PoolNotFound"),
        ("metadata.annotations[keepalived-operator.redhat-cop.io/spreadvips]", "InvalidRequest"),
    ]
    assert (api["kind"], api["namespace"], api["name"]) == ("Service", "dark", "api")
    assert [each["reason"] for each in api["causes"]] == ["NamespaceNotAllowed"]


@pytest.mark.slow
def test_references_to_absent_kinds_are_not_checked(tmp_path: Path) -> None:
    """One warning names the kinds that the files do not hold."""
    wants = {"kavip.io/pool": "other", "kavip.io/addresses": "192.0.2.7"}
    bad = service("bad", **{"kavip.io/addresses": "192.0.2.300", GROUP: "edge"})
    alone = check("-f", "-", given=json.dumps(service("web", **wants)) + json.dumps(bad))
    assert alone.returncode == 1
    assert [line.partition("refused: ")[2].partition("]")[0] for line in sorted(alone.stdout.splitlines())] == [
        f"metadata.annotations[{key}" for key in ("kavip.io/addresses", GROUP)
    ], "what needs no other object is still refused"
    assert alone.stderr == (
        "warning: the files hold no KeepalivedGroup, no VIPPool, no Namespace, no Node: "
        "references to them were not checked\n"
    )
    (tmp_path / "cluster.yaml").write_text("---\n".join((GROUPS, POOLS)))
    beside = check("-f", tmp_path, "-f", "-", given=json.dumps(service("web", namespace="dark")))
    assert (beside.returncode, beside.stdout) == (0, "")
    assert beside.stderr == "warning: the files hold no Namespace, no Node: references to them were not checked\n"


@pytest.mark.slow
def test_a_default_group_is_assumed_where_the_files_hold_no_group() -> None:
    """A Service that names no group is reviewed without one, and the groups of pools do not refuse it."""
    pool = f"{POOLS.strip()[:-1].partition(', namespaceSelector')[0]}, groups: [lb/edge]}}\n---\n"
    plain = service("web", **{GROUP: "", "kavip.io/addresses": "192.0.2.130"})
    alone = check("-f", "-", given=json.dumps(plain).replace(".130", ".300"))
    assert (alone.returncode, alone.stdout.count("'192.0.2.300': want one")) == (1, 1)
    assert "does nothing" not in alone.stderr
    beside = check("-f", "-", given=pool + json.dumps(plain))
    assert (beside.returncode, beside.stdout) == (0, "")
    wrong = check("-f", "-", given=pool + json.dumps(plain).replace(".130", ".99"))
    assert (wrong.returncode, wrong.stdout.count("192.0.2.99 is in no pool")) == (1, 1)


@pytest.mark.slow
def test_a_group_that_is_refused_is_the_cause(tmp_path: Path) -> None:
    """A Service that names it is refused too, and the message names the cause instead of another group."""
    (tmp_path / "groups.yaml").write_text("---\n".join((GROUPS.replace("eth0", "eth0 x"), POOLS, SHOP, NODE)))
    done = check("-f", tmp_path, "-f", "-", given=json.dumps(service("web")))
    group, web = sorted(done.stdout.splitlines(), key=lambda line: "Service" in line)
    assert "KeepalivedGroup lb/edge: refused: spec.interface" in group
    assert web.endswith('group "lb/edge" does not exist: it is refused itself, in these files; correct it first')


@pytest.mark.slow
def test_the_samples_are_accepted() -> None:
    """Other kinds cause no output."""
    arguments = [argument for path in SAMPLES for argument in ("-f", path)]
    done = check(*arguments, "-f", ROOT / "config" / "manager", "-f", ROOT / "config" / "crd", "-o", "json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"refused": []})
    assert planoutput.warnings(simulate.admit(files.load([ROOT / "config" / "webhook"]))) == [], "no VIP, no references"
    assert done.stderr == "warning: the files hold no Namespace, no Node: references to them were not checked\n"


@pytest.mark.slow
def test_strict_fails_where_an_object_has_a_warning(tmp_path: Path) -> None:
    """A misspelled annotation is a warning, because it may be another program's; what was not checked is none."""
    (tmp_path / "cluster.yaml").write_text("---\n".join((GROUPS, POOLS)))
    around = ("-f", tmp_path, "-f", "-")
    wrong = json.dumps(service("web", **{"kavip.io/adresses": "192.0.2.130"}))
    lenient = check(*around, given=wrong)
    assert (lenient.returncode, lenient.stdout) == (0, "")
    assert "[kavip.io/adresses]: kavip does not know this key; did you mean kavip.io/addresses?" in lenient.stderr
    strict = check(*around, "--strict", given=wrong)
    assert (strict.returncode, strict.stdout, strict.stderr) == (1, "", lenient.stderr)
    good = check(*around, "--strict", given=wrong.replace("adresses", "addresses"))
    assert (good.returncode, good.stdout) == (0, "")
    assert good.stderr == "warning: the files hold no Namespace, no Node: references to them were not checked\n"
    refused = check(*around, "--strict", given=wrong.replace("adresses", "addresses").replace(".130", ".300"))
    assert refused.returncode == 1


HELM = "kavip: standard input, line 3: a template of Helm; render it first: helm template ... | kavip check -f -\n"


@pytest.mark.slow
def test_an_unreadable_file_does_not_hide_the_others(tmp_path: Path) -> None:
    """Each unreadable file and object is reported, and the refusals of the others; the exit status is 2."""
    (tmp_path / "a.yaml").write_text("a: [\n")
    (tmp_path / "b.yaml").write_text("kind: Service\napiVersion: v1\nspec: 7\n---\n" + json.dumps(service("api")))
    (tmp_path / "c.yaml").write_bytes(b"\xff")
    (tmp_path / "d.yaml").write_text(json.dumps(service("web", **{GROUP: "edge"})))
    done = check("-f", tmp_path, "-f", tmp_path / "none")
    assert done.returncode == 2
    assert done.stdout.startswith(f"{tmp_path}/d.yaml:1: Service shop/web: refused: ")
    assert done.stdout.count("\n") == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("kavip: ")]
    assert [line.split()[1].rstrip(",:").rpartition("/")[2] for line in errors] == [
        "a.yaml",
        "b.yaml",
        "c.yaml",
        "none",
    ]


@pytest.mark.slow
def test_the_settings_of_admission_are_flags(tmp_path: Path) -> None:
    """They change the result as they do in a cluster."""
    (tmp_path / "cluster.yaml").write_text("---\n".join((GROUPS, POOLS, SHOP, NODE)))
    missing = json.dumps(service("web", **{GROUP: "lb/other"}))
    around = ("-f", tmp_path, "-f", "-")
    assert check(*around, given=missing).returncode == 1
    softened = check(*around, "--allow-missing-group", "warn", given=missing)
    assert (softened.returncode, "does not exist" in softened.stderr) == (0, True)
    plain = service("web", **{GROUP: ""})
    plain["spec"] = {"ports": [{"port": 80}], "externalIPs": ["198.51.100.7"]}
    del plain["metadata"]["annotations"]
    assert check(*around, given=json.dumps(plain)).returncode == 0
    assert check(*around, "--external-ips-scope", "all", given=json.dumps(plain)).returncode == 1
    alone = check("-f", "-", "--external-ips-scope", "all", given=json.dumps(plain))
    assert alone.returncode == 0, alone.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "given", "errors"),
    [
        (("-f", "nowhere.yaml"), "", "kavip: nowhere.yaml: cannot be read: No such file or directory\n"),
        (("-f", "-"), "", "kavip: standard input: no objects"),
        (("-f", "-"), "# nothing\n---\n", "kavip: standard input: no objects"),
        (("-f", "-"), "foo: bar\n", "kavip: standard input: no objects"),
        (("-f", "kavip/api"), "", "kavip: kavip/api: no objects: the folder holds no file that ends in .yaml"),
        (("-f", "charts/kavip/templates/view.yaml"), "", "kavip: charts/kavip/templates/view.yaml, line "),
        (("-f", "-"), "kind: Service\nmetadata:\n  name: {{ .Release.Name }}\n", HELM),
        (("-f", "-"), "{{- if .Values.web }}\nkind: Service\n{{- end }}\n", HELM.replace("3", "1")),
        (("-f", "-"), "a: 1\n---\n}", "kavip: standard input, document 2, line 3: not YAML: did not find expected"),
    ],
)
def test_an_unreadable_input_is_an_error_in_one_line(arguments: tuple[str, ...], given: str, errors: str) -> None:
    """The exit status is 2, without standard output or a traceback."""
    done = check(*arguments, given=given)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(errors)
    assert done.stderr.count("\n") == 1


DIFFERENT = {
    "addresses_are_available: a pool that is not in force": "here the pool is refused, so it does not exist",
    "addresses_are_available: an address of the API server": "here the pool is refused, so it does not exist",
}
SAME = [
    case
    for case in refusals.cases()
    if case.by != "crd"
    and case.operation is Operation.CREATE
    and not (case.settings or case.exempt or str(case) in DIFFERENT)
]


@pytest.mark.parametrize("case", SAME, ids=str)
def test_messages_are_those_of_the_webhook(case: Case) -> None:
    """Every case of the table has the same refusals and warnings as in the webhook."""
    around = [refusals.read(each) for each in (*refusals.cluster(), *case.cluster)]
    submitted = refusals.read(case.object)
    (judged,) = [
        each
        for each in simulate.admit([*around, submitted]).reviewed
        if (each.kind, each.namespace, each.name) == (case.kind, submitted.metadata.namespace, submitted.metadata.name)
    ]
    assert tuple((each.field, message_of(each)) for each in judged.verdict.refusals) == case.causes
    assert judged.verdict.warnings == case.warning_texts


SCHEMA = [case for case in refusals.cases() if case.by == "crd" and case.operation is Operation.CREATE]
SAME_WORDS = ("check_ends_in_time", "check_weighs", "no_delay", "no_password", "whole_seconds")
"""Rules about two fields: their words are kavip's in the schema too. Those about one value print the value first."""


@pytest.mark.parametrize("case", SCHEMA, ids=str)
def test_what_schemas_refuse_is_refused_too(case: Case) -> None:
    """About the same field, or one inside it, as a list has no index in some messages of the API server."""
    around = [refusals.read(each) for each in (*refusals.cluster(), *case.cluster)]
    submitted = refusals.read(case.object)
    refused = [
        (each.field, message_of(each))
        for one in simulate.admit([*around, submitted]).reviewed
        if (one.kind, one.namespace, one.name) == (case.kind, submitted.metadata.namespace, submitted.metadata.name)
        for each in one.verdict.refusals
    ]
    assert len(refused) == len(case.causes), refused
    for (field, message), (schema_field, schema_message) in zip(refused, case.causes, strict=True):
        assert field.startswith(schema_field)
        if case.rule in SAME_WORDS:
            assert message == schema_message.removeprefix("Invalid value: ")
