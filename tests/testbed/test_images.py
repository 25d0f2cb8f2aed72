"""What decides whether an image is stale."""

from pathlib import Path

import pytest

from hack.testbed import images, place
from hack.testbed.errors import TestbedError


def write(folder: Path, **files: str) -> Path:
    """A checkout with a Dockerfile."""
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder / "Dockerfile"


def test_an_image_depends_on_what_its_dockerfile_copies(tmp_path: Path) -> None:
    """Files, folders and patterns count; other stages, flags and files that are not copied do not."""
    text = (
        'FROM x\nCOPY --chown=1:1 pkg \\\n  run.txt /app/\nCOPY --from=other /tests /x\nADD ["a.*", "/"]\n# COPY no /\n'
    )
    dockerfile = write(tmp_path, Dockerfile=text, pkg__a="", pkg__b__c="", **{"run.txt": "", "a.one": "", "no": ""})
    found = [str(path.relative_to(tmp_path)) for path in images._copied(dockerfile, tmp_path)]
    assert found == ["a.one", "pkg/a", "pkg/b/c", "run.txt"]


def test_a_dockerfile_that_copies_everything_is_refused(tmp_path: Path) -> None:
    """Otherwise it is unknown when to build the image again."""
    with pytest.raises(TestbedError, match="copies its whole directory"):
        images._copied(write(tmp_path, Dockerfile="COPY . /app\n"), tmp_path)


def test_a_build_sees_a_list_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables for programs of this machine stay out; variables that a download needs go in."""
    for name in ("PYTHONPYCACHEPREFIX", "PIP_FIND_LINKS", "VIRTUAL_ENV", "KAVIP_CACHE", "LC_ALL"):
        monkeypatch.setenv(name, "/somewhere")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:3128")
    seen = dict(
        line.split("=", 1)
        for line in place.run(["env"], env=place.build_environment(), inherit=False).stdout.splitlines()
    )
    assert seen.pop("https_proxy") == "http://127.0.0.1:3128"
    assert seen.keys() <= {"PATH", "LANG", "DEBIAN_FRONTEND", *place._BUILD_INHERITS}
    assert "venv" not in seen["PATH"]
