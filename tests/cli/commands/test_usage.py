"""What the command line refuses: values that are empty, malformed or without effect, and files without an object."""

import sys
from pathlib import Path

import pytest

from kavip.api.naming import is_image
from kavip.cli.main import main
from tests.cli.commands.test_check import GROUPS

EMPTY = "kavip: Invalid value for '-f' / '--filename': empty: want a file or a folder (. is the current one)\n"
NAMESPACE = "want the name of a namespace\n"
IMAGE = "kavip: --image: 'bad image': want an image, such as registry.example/kavip:1.0\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("check", "-f", ""), EMPTY),
        (("plan", "-f", "{group}", "-f", ""), EMPTY),
        (("status", "-f", ""), EMPTY),
        (("convert", "external-ips", "-f", ""), EMPTY),
        (("import", "metallb", "-f", ""), EMPTY),
        (
            ("check", "-f", "{group}", "--group-namespaces", "lb,LB x"),
            f"kavip: --group-namespaces: 'LB x': {NAMESPACE}",
        ),
        (("render", "-f", "{group}", "--image", "bad image"), IMAGE),
        (
            ("render", "-f", "{group}", "--follow-nodes"),
            "kavip: --follow-nodes needs --static: a keepalived.conf alone has fixed peers\n",
        ),
        (("render", "-f", "{group}", "--bootstrap", "n1"), "kavip: --bootstrap needs --follow-nodes\n"),
        (
            ("convert", "external-ips", "-f", "{group}", "--dry-run", "-o", "json"),
            "kavip: -o json shows the plan for a cluster: give it without -f\n",
        ),
        (
            ("import", "metallb", "--hand-over", "-f", "{group}", "-o", "json"),
            "kavip: -o json shows a plan: give it without --hand-over\n",
        ),
        (
            ("import", "kube-vip", "--hand-over", "-o", "yaml"),
            "kavip: -o yaml shows a plan: give it without --hand-over\n",
        ),
        (("check", "-f", "{nothing}"), "kavip: {nothing}: no objects: want manifests of Kubernetes\n"),
        (
            ("convert", "external-ips", "-f", "{nothing}"),
            "kavip: {nothing}: no objects: want manifests of Kubernetes\n",
        ),
        (("import", "metallb", "-f", "{nothing}"), "kavip: {nothing}: no objects: want manifests of Kubernetes\n"),
        (
            ("import", "metallb", "--hand-over", "-f", "{nothing}"),
            "kavip: {nothing}: no objects: want manifests of Kubernetes\n",
        ),
    ],
)
def test_a_wrong_command_line_is_an_error_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: tuple[str, ...],
    error: str,
) -> None:
    """The exit status is 2, and nothing of an object is printed."""
    (tmp_path / "group.yaml").write_text(GROUPS)
    (tmp_path / "nothing.yaml").write_text("# nothing\n---\n")
    files = {"group": str(tmp_path / "group.yaml"), "nothing": str(tmp_path / "nothing.yaml")}
    monkeypatch.setattr(sys, "argv", ["kavip", *(each.format(**files) for each in arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr()
    assert (ended.value.code, output.err) == (2, error.format(**files))
    assert not [line for line in output.out.splitlines() if line and not line.startswith("#")]


TWO_ERRORS = """
apiVersion: v1
kind: Service
metadata: {name: web, labels: 5}
---
knd: Service
metadata: {name: api}
"""


@pytest.mark.parametrize(
    "arguments",
    [("check",), ("plan",), ("explain", "shop/web"), ("status",), ("render",), ("ui",)],
    ids=lambda arguments: str(arguments[0]),
)
def test_all_that_cannot_be_read_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Each command prints a line for each object, with its place."""
    (tmp_path / "a.yaml").write_text(TWO_ERRORS)
    (tmp_path / "b.yaml").write_text("{")
    monkeypatch.setattr(sys, "argv", ["kavip", *arguments, "-f", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr()
    assert (ended.value.code, output.out) == (2, "")
    found = [line.removeprefix(f"kavip: {tmp_path}/") for line in output.err.splitlines() if line.startswith("kavip: ")]
    assert found[:2] == [
        "a.yaml, document 1, line 4: Service default/web: metadata.labels: 5: want an object",
        "a.yaml, document 2, line 6: not a Kubernetes object: want apiVersion, kind and metadata",
    ]
    assert found[2].startswith("b.yaml, document 1, line 1: not YAML: ")


DIGEST = f"@sha256:{'0123456789abcdef' * 4}"


@pytest.mark.parametrize(
    "image",
    [
        "kavip",
        "kavip:latest",
        "localhost/kavip:dev",
        "registry.example:5000/net/kavip:VERSION",
        "[2001:db8::1]:5000/kavip",
        f"registry.example/kavip{DIGEST}",
        f"registry.example/kavip:1.0{DIGEST}",
    ],
)
def test_names_of_images_are_accepted(image: str) -> None:
    """With a registry, its port, a tag or a digest."""
    assert is_image(image)


@pytest.mark.parametrize(
    "image",
    ["", "bad image", "kavip:", "kavip:a:b", "/kavip", "kavip/", "a/KAVIP", "kavip@sha256:1", "kavip\n", "--x", "a//b"],
)
def test_other_texts_are_no_images(image: str) -> None:
    """A node could not pull them."""
    assert not is_image(image)
