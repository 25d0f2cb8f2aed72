"""Every way in which a user changes an object by kubectl and helm: the same messages, and an unchanged object."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hack import refusals
from hack.refusals import Case, Manifest
from hack.testbed.place import Result, run
from hack.testbed.programs import Programs
from kavip.api.review import Operation
from tests.admission.apiclient import object_path
from tests.admission.caserunner import CaseRunner
from tests.admission.test_kubectl import merge_patch

pytestmark = pytest.mark.apiserver

REFUSED = [case for case in refusals.cases() if case.by == "kavip" and case.causes]
CHANGED = list(
    {
        (case.kind, case.rule): case
        for case in reversed(REFUSED)
        if case.operation is not Operation.DELETE and object_path(case.passes) == object_path(case.object)
    }.values()
)
"""One case of each rule, where what is right is the same object."""
CREATED = [case for case in CHANGED if not case.old]

MARKS = ("annotations", "labels")

each_change = pytest.mark.parametrize("case", CHANGED, ids=str)
each_creation = pytest.mark.parametrize("case", CREATED, ids=str)


def edited(case: Case) -> Case:
    """*case* as an update, of its old object or of its correction."""
    return case if case.old else replace(case, operation=Operation.UPDATE, old=case.passes)


def target(case: Case) -> tuple[str, ...]:
    """The object, as kubectl arguments."""
    metadata = case.object["metadata"]
    namespace = ("-n", metadata["namespace"]) if "namespace" in metadata else ()
    return f"{case.kind.lower()}/{metadata['name']}", *namespace


def patches(case: Case) -> dict[str, object]:
    """The body of ``kubectl patch`` by patch type."""
    assert case.old
    difference = merge_patch(case.old, case.object)
    metadata, before = case.object["metadata"], case.old["metadata"]
    parts = {f"/metadata/{part}": metadata.get(part, {}) for part in MARKS if part in metadata or part in before}
    spec = case.object["spec"]
    if case.kind == "Service":
        changed = {f"/spec/{name}": value for name, value in spec.items() if case.old["spec"].get(name) != value}
        return {"json": added({**parts, **changed}), "merge": difference, "strategic": difference}
    return {"json": added({**parts, "/spec": spec}), "merge": difference}


def added(parts: Mapping[str, object]) -> list[dict[str, object]]:
    """The steps of a JSON patch that sets *parts*."""
    return [{"op": "add", "path": path, "value": value} for path, value in parts.items()]


@each_change
def test_replace_and_every_patch_are_refused(runner: CaseRunner, case: Case) -> None:
    """``kubectl replace`` and the three types of ``kubectl patch`` print the case and change nothing."""
    case = edited(case)
    with runner.running(case):
        before = runner.get(case.object)
        done = [runner.kubectl("replace", "-f", "-", given=case.object)]
        for kind, body in patches(case).items():
            done.append(runner.kubectl("patch", *target(case), f"--type={kind}", "-p", json.dumps(body)))
        for each in done:
            assert each.returncode != 0 and each.stderr.endswith(case.printed), each
        assert runner.get(case.object) == before


@each_change
def test_an_edit_is_refused_in_the_editor(runner: CaseRunner, case: Case, tmp_path: Path) -> None:
    """``kubectl edit`` opens the editor again with the 422 on top; without a further change the object stays."""
    case = edited(case)
    seen, submitted = tmp_path / "seen", tmp_path / "submitted.yaml"
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\ncp "$1" {seen}\ncp {submitted} "$1"\n')
    editor.chmod(0o755)
    with runner.running(case):
        before = runner.get(case.object)
        metadata = {**before.body["metadata"], **{mark: {} for mark in MARKS}, **case.object["metadata"]}
        submitted.write_text(yaml.safe_dump({**before.body, **case.object, "metadata": metadata}))
        command = runner.plane.kubectl_command("edit", *target(case))
        done = run(command, env={"KUBE_EDITOR": str(editor), "TMPDIR": str(tmp_path)}, check=False)
        assert done.returncode != 0, done
        comment = " ".join(line.removeprefix("#").strip() for line in seen.read_text().splitlines() if line[:1] == "#")
        for field, message in case.causes:
            assert f"{field}: {message}" in comment or (case.code == 403 and message in done.stderr)
        assert runner.get(case.object) == before


@each_creation
def test_the_valid_items_of_a_list_are_created(runner: CaseRunner, case: Case) -> None:
    """One invalid item of a List is refused; the items before and after it are created."""
    others = [listed(case.passes, name) for name in ("before", "after")]
    items = [others[0], case.object, others[1]]
    given = {"apiVersion": "v1", "kind": "List", "items": items}
    with runner.running(case):
        try:
            done = runner.kubectl("create", "-f", "-", given=given)
            assert done.returncode != 0 and done.stderr.endswith(case.printed), done
            assert [runner.get(each).code for each in items] == [200, 404, 200], done
        finally:
            for each in others:
                runner.api.request("DELETE", object_path(each))


def listed(manifest: Manifest, name: str) -> Manifest:
    """*manifest* with the name *name*."""
    return {**manifest, "metadata": {**manifest["metadata"], "name": name}}


@pytest.mark.chart
@each_creation
def test_helm_upgrade_fails_and_leaves_the_release(runner: CaseRunner, case: Case, helm: Callable[..., Result]) -> None:
    """The upgrade prints the case, the object stays, and the next upgrade with valid values succeeds."""
    with runner.running(case):
        try:
            assert helm("install", given=case.passes).returncode == 0
            before = runner.get(case.object)
            done = helm("upgrade", given=case.object)
            assert done.returncode != 0
            for field, message in case.causes:
                assert message in done.stderr, (field, done.stderr)
            assert runner.get(case.object) == before
        finally:
            helm("uninstall")


@pytest.fixture
def helm(runner: CaseRunner, programs: Programs, tmp_path: Path) -> Callable[..., Result]:
    """Helm with a chart whose only object is its values."""
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: shop\nversion: 0.1.0\n")
    (chart / "templates" / "object.yaml").write_text("{{ toYaml .Values }}\n")
    own = {f"HELM_{name}_HOME": str(tmp_path / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    environment = {**own, "KUBECONFIG": str(runner.plane.kubeconfig)}

    def call(verb: str, *, given: object = None) -> Result:
        values = tmp_path / "values.json"
        values.write_text(json.dumps(given or {}))
        files = [str(chart), f"--values={values}"] if given else ["--ignore-not-found"]
        return run([programs["helm"], verb, "shop", *files], env=environment, check=False)

    return call
