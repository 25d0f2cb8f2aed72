"""What a how-to shows of kavip: its commands, run on the page's own manifests, so that no output is written by hand."""

import json
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
_MANIFESTS: Final = re.compile(r"```yaml\n((?:.*\n)*?)```")
_SHOWN: Final = re.compile(r"```console\n\$ kavip (.*)\n(?:.*\n)*?```")
_KEY: Final = "kavip.io/sharing-key"


def page(text: str) -> str:
    """*text* with what its commands print now; its first manifests are ``pools.yaml``."""
    manifests = _MANIFESTS.search(text)
    assert manifests is not None
    with TemporaryDirectory(prefix="shown-") as folder:
        (Path(folder) / "pools.yaml").write_text(manifests[1])
        (Path(folder) / "services.yaml").write_text("\n---\n".join(map(json.dumps, _around())))
        return _SHOWN.sub(partial(_printed, folder=folder), text)


def _printed(match: re.Match[str], *, folder: str) -> str:
    command = [sys.executable, "-m", "kavip", *shlex.split(match[1])]
    done = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=60
    )
    return f"```console\n$ kavip {match[1]}\n{done.stdout}{done.stderr}```"


def _around() -> list[dict[str, Any]]:
    """The content of ``services.yaml``: a default group, and Services of one namespace."""
    group = {"name": "edge", "namespace": "lb", "labels": {"kavip.io/default-group": "true"}}
    annotations_of: dict[str, dict[str, str]] = {
        "api": {_KEY: "web"},
        "beside": {_KEY: "web"},
        "early": {},
        "late": {},
        "till": {"kavip.io/pool": "lab"},
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}},
        {
            "apiVersion": "redhatcop.redhat.io/v1alpha1",
            "kind": "KeepalivedGroup",
            "metadata": group,
            "spec": {"interface": "eth0"},
        },
        *(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name, "namespace": "shop", "annotations": notes},
                "spec": {"type": "LoadBalancer", "ports": [{"port": 8000 + number}]},
            }
            for number, (name, notes) in enumerate(annotations_of.items())
        ),
    ]
