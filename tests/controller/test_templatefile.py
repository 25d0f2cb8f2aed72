"""The file with the patch of all pods: read before the first plan, and again after changes."""

import asyncio
from pathlib import Path

import pytest

from kavip.controller import templatefile
from kavip.controller.templatefile import TemplateFile
from kavip.podtemplate.defaulttemplate import MOST_BYTES, NO_TEMPLATE


async def test_without_a_path_there_is_no_template() -> None:
    """Nothing is read, and nothing changes."""
    found = TemplateFile("")
    assert not await found.update()
    assert found.template == NO_TEMPLATE


async def test_the_file_is_read_again(tmp_path: Path) -> None:
    """A file that comes, changes, becomes unusable and goes is a change each time, and never an error."""
    path = tmp_path / "template.yaml"
    found = TemplateFile(str(path))
    assert await found.update()
    assert found.template.fault == f"{path}: cannot be read: No such file or directory"
    assert not await found.update()
    path.write_text("spec: {priorityClassName: a}")
    assert await found.update()
    assert found.template.patch == {"spec": {"priorityClassName": "a"}}
    path.write_text("spec: [")
    assert await found.update()
    assert "line " in found.template.fault
    path.write_bytes(b"#" * (MOST_BYTES + 1))
    assert await found.update()
    assert "want at most" in found.template.fault
    path.unlink()
    path.mkdir()
    assert await found.update()
    assert found.template.fault == f"{path}: cannot be read: Is a directory"


async def test_a_change_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it runs, each change is reported once."""
    monkeypatch.setattr(templatefile, "LOOK_SECONDS", 0.01)
    path, changed = tmp_path / "template.yaml", asyncio.Event()
    found = TemplateFile(str(path))
    await found.update()
    task = asyncio.create_task(found.run(changed.set))
    try:
        path.write_text("spec: {priorityClassName: a}")
        async with asyncio.timeout(60):
            await changed.wait()
        assert found.template.patch is not None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
