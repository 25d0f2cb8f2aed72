"""Objects from files: errors name file, document and line, and no file can harm the reader."""

import json
import time
from pathlib import Path

import pytest

from kavip.api import yamldocuments
from kavip.api.service import Service
from kavip.cli.sources import files
from kavip.cli.sources.files import load, read_all
from kavip.errors import BadFile

SERVICE = "apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\n"
GROUP = "apiVersion: redhatcop.redhat.io/v1alpha1\nkind: KeepalivedGroup\nmetadata: {name: edge}\nspec: %s\n"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "document 1, line 1: nested more than 200 levels deep"),
        ("{a: " * 100_000, "document 1, line 1: nested more than 200 levels deep"),
        ('{"a": ' * 100_000, "document 1, line 1: nested more than 200 levels deep"),
        ("a: [", "document 1, line 1: not YAML: "),
        ("a: 1\n---\nb: 2\n---\nc: }\n", "document 3, line 5: not YAML: "),
        ("a: 1\n---\nb: *nowhere\n", "document 2, line 3: not YAML: found undefined alias"),
        ("a: 1\n---\na: {{ .Values.a }}\n", "line 3: a template of Helm; render it first: "),
        ("!!python/object/apply:os.system [true]", "document 1, line 1: the tag !!python/object/apply:os.system is of"),
        ("a: 1\nb: !!timestamp 2026-01-01", "document 1, line 2: the tag !!timestamp is of no type of JSON; remove it"),
        ("a: !<a%1b> b", r"document 1, line 1: the tag a\x1b is of no type of JSON; remove it"),
        ("a: !!bool x", "document 1, line 1: the tag !!bool does not fit its value"),
        ('a: !!int ""', "document 1, line 1: the tag !!int does not fit its value"),
        ('!!float "": 1', "document 1, line 1: the tag !!float does not fit its value"),
        ("!!set [a]", "document 1, line 1: the tag !!set is of no type of JSON; remove it"),
        ("a: !!map x", "document 1, line 1: the tag !!map does not fit its value"),
        ("a: 1\n---\n" + BOMB, "document 2, line 8: aliases repeat more than 100000 nodes"),
        ("a: &a\n  b: *a\n", "document 1, line 2: the alias *a is in the collection to which it refers"),
        (SERVICE % "a" + "  name: b\n", 'document 1, line 5: the key "name" occurs twice in one object'),
        ("a: 1\n---\nb: {true: 1, yes: 2}\n", "document 2, line 3: not YAML: a key is no text, number or"),
        ("{~: 1}", "document 1, line 1: not YAML: a key is no text, number or boolean, or occurs twice"),
        ('{"a": 1}\n{"b": {"c": 1,\n"c": 2}}', 'document 2, line 2: the key "c" occurs twice in one object'),
        ('"\\e[31m": 1\n"\\e[31m": 2', r'document 1, line 2: the key "\x1b[31m" occurs twice in one object'),
        ("a: ü\n---\nb: 1\nc: \x00", "line 4: not YAML: control characters are not allowed"),
        ("a: 1\nb: .inf", "document 1, line 2: not YAML: JSON has no such number"),
        ('{"a": ' + "9" * 5000 + "}", "document 1, line 1: a number has too many digits"),
        ('{"a": {"\\u001b[31m": 1, "\\u001b[31m": 2}}', 'document 1, line 1: the key "\\x1b[31m" occurs twice'),
        ("- 1", "document 1, line 1: not a Kubernetes object: want apiVersion, kind and metadata"),
        (SERVICE.replace("kind", "knd") % "a", "document 1, line 1: not a Kubernetes object: want apiVersion, kind"),
        ("kind: List\napiVersion: v1\nitems: 5\n", "document 1, line 3: items: want a list"),
        (SERVICE % "a" + "spec: {'ports[99]': 1}", "document 1, line 5: Service default/a: spec.ports[99]: unknown"),
        (SERVICE % "a" + "spec: {ports: [{port: 80}], 'ports[99]': 1}", "document 1, line 5: Service default/a: spec"),
        (
            SERVICE % "a" + f"spec: {{ports: [], ? 'ports[{'9' * 5000}]' : 1}}",
            "document 1, line 5: Service default/a: spec.ports[999",
        ),
        (
            SERVICE % "a" + "spec: {ports: [{port: 80}], 'ports[\u00b2]': 1}",
            "document 1, line 5: Service default/a: sp",
        ),
        (
            '{"a": "\\\\ud800 \\ud83d\\ude00"}\n{"b": 1,\n"c": {"\\ud800": 1}}',
            "document 2, line 3: a text holds half of a character (a lone surrogate)",
        ),
        ('{"a": "\\\\\\udE00"}', "document 1, line 1: a text holds half of a character"),
        ('{"a": "\\uD83d\\ud83d\\ude00"}', "document 1, line 1: a text holds half of a character"),
        (
            '{"a": "\\\\ud83d\\ude00"}',
            "document 1, line 1: a text holds half of a character (a lone surrogate)",
        ),
        ("kind: List\nitems: 5\n", "document 1, line 2: items: want a list"),
        ("apiVersion: v1\nkind: 5\n", "document 1, line 1: not a Kubernetes object: want apiVersion, kind"),
        ("kind: VIPPool\nmetadata: {name: a}\n", "document 1, line 1: not a Kubernetes object: want apiVersion, kind"),
        ("kind: Service\nmetadata: {name: a}\n", 'document 1, line 1: Service: apiVersion "" is not served; want "v1"'),
        (SERVICE % "5", 'document 1, line 4: Service: metadata.name: 5: want a string; quote it: "5"'),
        (SERVICE % '"a\\nkavip: fine"', "document 1, line 4: Service: metadata.name: 'a\\nkavip: fine': want the name"),
        (SERVICE % '"a\\e[31mb"\n  labels: 5', "document 1, line 5: Service: metadata.labels: 5: want an object"),
        (GROUP % '{"\\e[31m": 1}', r"document 1, line 4: KeepalivedGroup default/edge: spec.\x1b[31m: unknown field"),
        (SERVICE % "a/b", "document 1, line 4: Service: metadata.name: 'a/b': want the name of an object: up to 253"),
        (SERVICE % "a\n  namespace: B", "document 1, line 5: Service: metadata.namespace: 'B': want the name of an"),
        (
            f"{SERVICE % 'a'}---\n{SERVICE % 'web'}spec:\n  ports:\n  - port: 80\n  - port: http\n",
            'document 2, line 13: Service default/web: spec.ports[1].port: "http": want a whole number',
        ),
        ("apiVersion: v1\nkind: List\nitems:\n- 5\n", "document 1, line 4: not a Kubernetes object"),
        (
            "kind: VIPPool\napiVersion: kavip.io/v1\n",
            'document 1, line 2: VIPPool: apiVersion "kavip.io/v1" is not served; want "kavip.io/v1alpha1"',
        ),
        (
            GROUP % "{interface: eth0, blackListRouterIDs: [1]}",
            'document 1, line 4: KeepalivedGroup default/edge: spec.blackListRouterIDs: unknown field; did you mean "b',
        ),
        (
            GROUP % "\n  interface: eth0\n  virtualIPs:\n  - address: 192.0.2.9\n    dev: eth0",
            "document 1, line 8: KeepalivedGroup default/edge: spec.virtualIPs[0].dev: unknown field",
        ),
    ],
)
def test_an_error_names_its_place(tmp_path: Path, text: str, words: str) -> None:
    """It is one line with the file, the place and the problem."""
    file = tmp_path / "objects.yaml"
    file.write_text(text)
    *_, error = read_all([file]).unread  # the documents before it may be no objects
    assert str(error).startswith(f"{file}, {words}")
    assert "\n" not in str(error)


LONG = "x" * 400


@pytest.mark.parametrize(
    ("written", "line", "words"),
    [
        (
            "metadata:\n  namespace: shop\n  name: web\n  annotations:\n    a: b\n    kavip.io/address-count: 3\n",
            8,
            'Service shop/web: metadata.annotations[kavip.io/address-count]: 3: want a string; quote it: "3"',
        ),
        (
            "metadata:\n  name: web\n  labels:\n    a: yes\n",
            6,
            'Service default/web: metadata.labels[a]: true: want a string; quote it: "yes"',
        ),
        (
            "metadata: {name: web, annotations: {kavip.io/pool: }}\n",
            3,
            'Service default/web: metadata.annotations[kavip.io/pool]: null: want a string; for an empty one write ""',
        ),
        (
            "metadata: {name: web}\nspec: {ports: [{port: '80'}]}\n",
            4,
            'Service default/web: spec.ports[0].port: "80": want a whole number; write it without quotes: 80',
        ),
        ("spec: {ports: {}}\n", 3, "Service: spec.ports: an object: want a list"),
        ("spec: {ports: [80.5]}\n", 3, "Service: spec.ports[0]: 80.5: want an object"),
        ("status: {conditions: [{}]}\n", 3, "Service: status.conditions[0].type: required, but missing"),
        (
            'metadata:\n  annotations: {"a\\e[31m]": 1}\n',
            4,
            r'Service: metadata.annotations[a\x1b[31m]]: 1: want a string; quote it: "1"',
        ),
        (
            f"metadata: {{labels: {{{LONG}: 1}}}}\n",
            3,
            f'Service: metadata.labels[{LONG[:100]}...]: 1: want a string; quote it: "1"',
        ),
        (f"spec: {{ports: {LONG}}}\n", 3, f'Service: spec.ports: "{LONG[:99]}...: want a list'),
    ],
)
def test_a_wrong_type_is_named_with_key_value_and_remedy(tmp_path: Path, written: str, line: int, words: str) -> None:
    """Values are shown as users write them, the beginning of long ones, and nothing reaches a terminal unescaped."""
    file = tmp_path / "objects.yaml"
    file.write_text(f"apiVersion: v1\nkind: Service\n{written}")
    (error,) = read_all([file]).unread
    assert str(error) == f"{file}, document 1, line {line}: {words}"


def test_a_wrong_type_in_json_is_named_with_its_key(tmp_path: Path) -> None:
    """JSON has no place below the document."""
    group = {"apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "KeepalivedGroup", "metadata": {"name": "edge"}}
    file = tmp_path / "a.json"
    file.write_text(json.dumps({**group, "spec": {"nodeSelector": {"a": "b", "node.example/edge": True}}}))
    (error,) = read_all([file]).unread
    field = "KeepalivedGroup default/edge: spec.nodeSelector[node.example/edge]"
    assert str(error) == f'{file}, document 1, line 1: {field}: true: want a string; quote it: "true"'


def test_the_items_of_a_list_of_one_kind_need_no_type(tmp_path: Path) -> None:
    """``kubectl get --raw`` prints them so."""
    file = tmp_path / "raw.json"
    items = [{"metadata": {"name": "a", "namespace": "shop"}}, {"metadata": {"name": "b", "namespace": "shop"}}]
    file.write_text(json.dumps({"kind": "ServiceList", "apiVersion": "v1", "metadata": {}, "items": items}))
    assert [each.metadata.key for each in load([file])] == ["shop/a", "shop/b"]


def test_keys_are_text_as_for_kubectl(tmp_path: Path) -> None:
    """Numbers and booleans too: they are keys of JSON."""
    notes = "  annotations: {1: a, 0x10: b, yes: c, 1.5: d, 2026-01-01: e}\n"
    (tmp_path / "a.yaml").write_text(SERVICE % "a" + notes)
    (found,) = load([tmp_path])
    assert found.metadata.annotations == {"1": "a", "16": "b", "true": "c", "1.5": "d", "2026-01-01": "e"}


def test_numbers_of_base_60_are_text(tmp_path: Path) -> None:
    """Kubernetes reads them so; PyYAML would need a time that grows with the square of their length."""
    (tmp_path / "a.yaml").write_text(
        SERVICE % "a" + f"  annotations: {{a: 1:30, b: -1:30.5, 1:30: c, d: 1{':1' * 9999}}}\n"
    )
    (found,) = load([tmp_path])
    assert found.metadata.annotations == {"a": "1:30", "b": "-1:30.5", "1:30": "c", "d": f"1{':1' * 9999}"}


def test_a_key_that_occurs_twice_is_found_quickly(tmp_path: Path) -> None:
    """The time does not grow with the square of the number of keys."""
    file = tmp_path / "a.json"
    file.write_text("{" + "".join(f'"{number}": 0, ' for number in range(50_000)) + '"49999": 0}')
    started = time.process_time()
    with pytest.raises(BadFile, match='the key "49999" occurs twice in one object'):
        load([file])
    assert time.process_time() - started < 5  # counting each key anew takes 20


def test_the_tags_of_the_types_of_json_are_read(tmp_path: Path) -> None:
    """Also on quoted text, as YAML allows."""
    notes = "  annotations: !!map {a: !!str 5, b: ! six, !!int '7': !!str ''}\n"
    (tmp_path / "a.yaml").write_text(SERVICE % "a" + notes + "spec: {ports: !!seq [{port: !!int '80'}]}")
    (found,) = load([tmp_path])
    assert isinstance(found, Service)
    assert found.metadata.annotations == {"a": "5", "b": "six", "7": ""}
    assert [each.port for each in found.spec.ports or ()] == [80]


def test_a_merge_key_may_have_its_tag(tmp_path: Path) -> None:
    """Released manifests of Knative and Tekton have it; as values, << and = are text."""
    text = f"{SERVICE % 'a'}  labels: &l {{x: <<, y.z: =}}\n  annotations:\n    !!merge <<: *l\n    b: c\n"
    (tmp_path / "a.yaml").write_text(text)
    (found,) = load([tmp_path])
    assert isinstance(found, Service)
    assert found.metadata.annotations == {"x": "<<", "y.z": "=", "b": "c"}


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """The error names the line of the first invalid byte."""
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"a: 1\n# Gr\xfc\xdfe\n")
    with pytest.raises(BadFile, match=r"latin.yaml, line 2: not UTF-8$"):
        load([file])


def test_a_device_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read up to the limit."""
    monkeypatch.setattr(files, "_LARGEST", 2 * 1024 * 1024)
    with pytest.raises(BadFile, match=r"/dev/zero: larger than 2 MiB; split it"):
        load([Path("/dev/zero")])


def test_the_nodes_of_a_file_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In all of its documents, before anything is built: a node takes more memory than its two bytes of text."""
    monkeypatch.setattr(yamldocuments, "_MOST_NODES", 9)
    file = tmp_path / "a.yaml"
    file.write_text("[1, 1, &a 1]\n---\n[1, *a, b: 1]\n")
    with pytest.raises(BadFile, match=r"document 2, line 3: more than 9 nodes in one file; split it"):
        load([file])
    file.write_text(SERVICE % "a")
    assert len(load([file])) == 1


def test_folders_lists_and_other_kinds(tmp_path: Path) -> None:
    """Files of a folder are sorted by name, items of lists are objects, and other kinds are skipped."""
    service = "{apiVersion: v1, kind: Service, metadata: {name: %s}}"
    (tmp_path / "b.yaml").write_text(f"apiVersion: v1\nkind: List\nitems: [{service % 'second'}]")
    (tmp_path / "a.json").write_text('{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "first"}}')
    (tmp_path / "c.yml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: none}")
    (tmp_path / "d.yml").write_text(f"apiVersion: v1\nkind: ServiceList\nitems: [{service % 'third'}]")
    (tmp_path / "values.yaml").write_text("image: {tag: 1}")
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: web")
    (tmp_path / "kustomization.yaml").write_text("resources: [a.json]")
    (tmp_path / "notes.txt").write_text("}")
    assert [each.metadata.key for each in load([tmp_path])] == ["default/first", "default/second", "default/third"]


def test_the_output_of_helm_is_read(tmp_path: Path) -> None:
    """It has comments, documents with comments only, anchors and merge keys; places are those of the objects."""
    file = tmp_path / "rendered.yaml"
    file.write_text(
        "---\n# Source: shop/templates/none.yaml\n---\n# Source: shop/templates/web.yaml\n"
        + SERVICE % "web"
        + "  labels: &labels {app: web}\n---\n"
        + SERVICE.replace("v1", "v1 # the only one") % "api"
        + "  labels: &mine\n    <<: {tier: front}\n    app: api\n  annotations:\n    <<: *mine\n    app: other\n"
    )
    web, api = read_all([file]).found
    assert (str(web), str(api)) == (f"{file}:5", f"{file}:11")
    assert api.object.metadata.labels == {"tier": "front", "app": "api"}
    assert api.object.metadata.annotations == {"tier": "front", "app": "other"}


def test_json_documents_may_follow_one_another(tmp_path: Path) -> None:
    """kubectl reads them too; YAML that begins like JSON is read as YAML."""
    file = tmp_path / "objects.json"
    named = [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "annotations": {"note": note}}}
        for name, note in (("a", "\U0001f600"), ("b", ""))
    ]
    file.write_text("\n\n".join(json.dumps(each, indent=1) for each in named))
    assert [(each.object.metadata.name, each.line) for each in read_all([file]).found] == [("a", 1), ("b", 12)]
    file.write_text("{apiVersion: v1, kind: Service, metadata: {name: a}}")
    assert [each.metadata.name for each in load([file])] == ["a"]


def test_an_object_may_occur_once(tmp_path: Path) -> None:
    """A second one is an error with both places; a file that is given twice is read once."""
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(SERVICE % "web")
    assert len(load([first, tmp_path])) == 1
    second.write_text(f"# the same\n{SERVICE % 'web'}  namespace: default\n")
    with pytest.raises(BadFile) as refused:
        load([tmp_path])
    message = f"{second}, document 1, line 2: Service default/web is already in {first}:1; keep one of them"
    assert str(refused.value) == message


def test_configmaps_with_templates_are_read(tmp_path: Path) -> None:
    """Those with the label, in the namespace default if they name none; malformed ones and others are skipped."""
    configmap = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {kavip.io/config-template: ''}}\ndata: %s\n"
    )
    (tmp_path / "a.yaml").write_text(
        "---\n".join(
            (
                configmap % ("lines", "{a: b}"),
                configmap % ("malformed", "[]"),
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n",
                SERVICE % "web",
            )
        )
    )
    objects, templates = files.load_with_templates([tmp_path])
    assert [each.metadata.key for each in objects] == ["default/web"]
    assert [(each.metadata.key, each.data) for each in templates] == [("default/lines", {"a": "b"})]


def test_a_misspelt_field_of_a_service_has_its_line(tmp_path: Path) -> None:
    """It would lose the request, and kubectl refuses it too."""
    file = tmp_path / "a.yaml"
    file.write_text(f"{SERVICE % 'web'}  annotation: {{kavip.io/pool: edge}}\n")
    (error,) = read_all([file]).unread
    problem = 'Service default/web: metadata.annotation: unknown field; did you mean "annotations"?'
    assert str(error) == f"{file}, document 1, line 5: {problem}"
