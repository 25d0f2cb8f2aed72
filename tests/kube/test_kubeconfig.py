"""The kubeconfig that kavip uses is the one that kubectl uses."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.programs import Programs
from kavip.errors import SettingsError
from kavip.kube import kubeconfig
from kavip.kube.auth import Credentials

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def write(file: Path, *names: str, current: str = "") -> Path:
    """A kubeconfig with a cluster, a user and a context for each of *names*; its servers have the name of the file."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [{"name": name, "cluster": {"server": f"http://{file.name}:{len(name)}"}} for name in names],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in names],
        "users": [{"name": name, "user": {}} for name in names],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content))
    return file


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a kubeconfig."""
    write(tmp_path / "home" / ".kube" / "config", "home", current="home")
    return tmp_path / "home"


def listed(*files: Path) -> dict[str, str]:
    """KUBECONFIG with these files."""
    return {"KUBECONFIG": os.pathsep.join(map(str, files))}


def test_the_flag_comes_before_the_variable_and_the_variable_before_the_home(home: Path, tmp_path: Path) -> None:
    """The first that is given counts; the pod's account comes last."""
    one, two, token = write(tmp_path / "one", "a"), write(tmp_path / "two", "b"), tmp_path / "token"
    token.touch()
    everything = {"HOME": str(home), **listed(two), **POD}
    assert kubeconfig.find(str(one), environment=everything, token=token).paths == str(one)
    assert kubeconfig.find("", environment=everything, token=token).paths == str(two)
    at_home = {"HOME": str(home), **POD}
    assert kubeconfig.find("", environment=at_home, token=token).paths == str(home / ".kube" / "config")
    assert kubeconfig.find("", environment=POD, token=token).paths == ""


@pytest.mark.parametrize("missing", ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "token"])
def test_a_pod_has_both_variables_and_a_token(tmp_path: Path, missing: str) -> None:
    """Without one of the three, nothing is used, and the message says what to set."""
    token = tmp_path / "token"
    if missing != "token":
        token.touch()
    environment = {name: value for name, value in POD.items() if name != missing}
    with pytest.raises(SettingsError, match="set KUBECONFIG to the path of a kubeconfig, or give --kubeconfig"):
        kubeconfig.find("", environment=environment, token=token)


def test_files_without_a_cluster_are_no_configuration(home: Path, tmp_path: Path) -> None:
    """kubectl writes an empty ~/.kube/config; in a pod, the account of the pod counts then."""
    token = tmp_path / "token"
    token.touch()
    (home / ".kube" / "config").write_text("apiVersion: v1\nkind: Config\nclusters: null\ncurrent-context: ''\n")
    assert kubeconfig.find("", environment={"HOME": str(home), **POD}, token=token).paths == ""
    with pytest.raises(SettingsError, match="config has none"):
        kubeconfig.find("", environment={"HOME": str(home)}, token=token)


def test_a_variable_whose_files_are_missing_does_not_fall_back_to_the_home(home: Path) -> None:
    """The variable counts, although no file of it exists; the message quotes it."""
    with pytest.raises(SettingsError, match="KUBECONFIG is '/nowhere/a', where no file has a cluster"):
        kubeconfig.find("", environment={"HOME": str(home), "KUBECONFIG": "/nowhere/a"})


async def test_a_bad_file_is_no_empty_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be parsed stops the program; another cluster is never used instead."""
    good, bad = write(tmp_path / "good", "a", current="a"), tmp_path / "bad"
    bad.write_text("clusters: [")
    monkeypatch.setenv("KUBECONFIG", f"{bad}{os.pathsep}{good}")
    with pytest.raises(SettingsError, match=r"bad.*not YAML"):
        await Credentials("").load()


@pytest.mark.apiserver
@pytest.mark.parametrize(
    "files",
    [
        [("one", ("a",), "a"), ("two", ("b",), "b")],
        [("one", ("a",), ""), ("two", ("b",), "b")],
        [("one", ("a",), "b"), ("two", ("b",), "a")],
        [("one", ("a", "b"), ""), ("two", ("b", "c"), "b")],
        [("missing", (), ""), ("one", ("a",), "a")],
        [("one", (), "b"), ("two", ("b",), "")],
    ],
    ids=["first context", "context of the second", "context in another file", "same name", "missing", "context only"],
)
def test_several_files_are_merged_as_kubectl_merges_them(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[tuple[str, tuple[str, ...], str]]
) -> None:
    """The server of the merged configuration is the one that the real kubectl names."""
    paths = [tmp_path / name for name, _, _ in files]
    for path, (name, entries, current) in zip(paths, files, strict=True):
        if name != "missing":
            write(path, *entries, current=current)
    environment = {"HOME": str(tmp_path), **listed(*paths)}
    command = [programs["kubectl"], "config", "view", "--minify", "--output=json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    minified: dict[str, Any] = json.loads(done.stdout)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    credentials = Credentials("")
    asyncio.run(credentials.load())
    assert [credentials.server] == [each["cluster"]["server"] for each in minified["clusters"]]
