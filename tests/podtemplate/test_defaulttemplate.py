"""The file with the patch of all pods: its faults have a line and a column, and none raises an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.podtemplate.defaulttemplate import MOST_BYTES, DefaultTemplate, read
from tests.support.examples import examples

WHERE = "/templates/x.yaml"
PATCH = """\
# for all groups
spec:
  containers:
    - name: a
      image: b
      env: [{name: C}]
"""
FAULTS: dict[str, tuple[bytes, str]] = {
    "a Go template": (b"- apiVersion: v1\n  name: {{ .KeepalivedGroup.Name }}\n", "line 2, column 9: a Go template"),
    "no YAML": (b"spec:\n  a: [1,\n", "line 2, column 1: not YAML"),
    "a tab": (b"spec:\n\ta: 1\n", "line 2, column 1: not YAML"),
    "a list": (b"- a\n", "line 1, column 1: want one YAML object"),
    "an object of Kubernetes": (b"spec: {}\nkind: DaemonSet\n", "line 2, column 1: 'kind': unknown field"),
    "text": (b"spec: x\n", "line 1, column 1: spec: want an object"),
    "no text as key": (b"metadata:\n  labels: {null: x}\n", "line 2, column 11: not YAML: a key is no text"),
    "a key twice": (b"spec:\n  a: 1\n  a: 2\n", 'line 3, column 3: the key "a" occurs twice'),
    "two documents": (b"spec: {}\n---\nspec: {}\n", "line 3, column 1: a second document"),
    "no UTF-8": (b"spec:\n  a: \xff\n", "line 2, column 6: want UTF-8"),
    "a control character": (b"spec: \x01\n", "line 1, column 1: not YAML"),
    "too long": (b"#" * (MOST_BYTES + 1), "line 1, column 1: want at most"),
    "deep": (b"spec: " + b"[" * 300, "line 1, column 206: nested more than 200 levels deep"),
    "an alias of itself": (b"spec: &a {b: *a}\n", "line 1, column 14: the alias *a"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_have_a_place(case: str) -> None:
    """The message begins with the file, the line and the column."""
    content, wanted = FAULTS[case]
    found = read(WHERE, content)
    assert found.patch is None
    assert found.fault.startswith(f"{WHERE}: {wanted}")


def test_numbers_as_keys_are_text() -> None:
    """So kubectl reads them, too."""
    assert read(WHERE, b"metadata:\n  labels: {1: x}\n").patch == {"metadata": {"labels": {"1": "x"}}}


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"---\n"])
def test_an_empty_file_changes_nothing(content: bytes) -> None:
    """There is no patch and no fault."""
    assert read(WHERE, content) == DefaultTemplate(WHERE)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("$.spec.containers[a].image", "line 5, column 7"),
        ("$.spec.containers[a].env[C].value", "line 6, column 13"),
        ("$.spec.containers[0]", "line 4, column 7"),
        ("$.spec.hostPID", "line 2, column 1"),
        ("$.metadata.labels[x.example.com/y]", "line 2, column 1"),
        ("$", "line 2, column 1"),
    ],
)
def test_a_path_has_a_place(path: str, place: str) -> None:
    """A fault that is found later is shown at the part of the file, or at the nearest one above it."""
    assert read(WHERE, PATCH.encode()).message(path, "no") == f"{WHERE}: {place}: no"


@examples(300)
@given(st.one_of(st.binary(max_size=200), st.text("-: {}[]&*a1\n\t#'\"|>!", max_size=60).map(str.encode)))
def test_any_content_is_a_patch_or_a_fault(content: bytes) -> None:
    """No content raises an error."""
    found = read(WHERE, content)
    assert not (found.patch is not None and found.fault)
