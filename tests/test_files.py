"""Files: what cannot be read is told with file, document and field, and harms nobody."""

from pathlib import Path

import pytest

from kavip.errors import BadInput
from kavip.files import load


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "is nested more than 200 levels deep"),
        ("{a: " * 100_000, "is nested more than 200 levels deep"),
        ("a: [", "is not YAML"),
        ("!!python/object/apply:os.system [true]", "is not YAML"),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: 5}", "Expected `str`, got `int` - at `$.metadata.name`"),
        ("- 1", "want a Kubernetes object"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, text: str, words: str) -> None:
    """One line that names the file and what is wrong."""
    file = tmp_path / "objects.yaml"
    file.write_text(text)
    with pytest.raises(BadInput) as refused:
        load([file])
    assert words in str(refused.value)
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_folders_lists_and_other_kinds(tmp_path: Path) -> None:
    """Files of a folder come in the order of their names, items of a List singly, unknown kinds not at all."""
    service = "{apiVersion: v1, kind: Service, metadata: {name: %s}}"
    (tmp_path / "b.yaml").write_text(f"apiVersion: v1\nkind: List\nitems: [{service % 'second'}]")
    (tmp_path / "a.json").write_text('{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "first"}}')
    (tmp_path / "c.yml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: none}")
    assert [each.metadata.key for each in load([tmp_path])] == ["default/first", "default/second"]
