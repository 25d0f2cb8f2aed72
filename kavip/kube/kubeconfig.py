"""
Which kubeconfig is used: the rules of kubectl.

``--kubeconfig``, then ``KUBECONFIG``, which may list several files, then ``~/.kube/config``, then the pod's service
account. The first of these counts, even if it is bad. Files of a list that do not exist or hold nothing are skipped,
and the first file that sets a value wins. kubernetes_asyncio merges clusters, contexts and users by this rule, but
takes ``current-context`` from the last file; so this module reads it.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from kavip.errors import SettingsError

TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_POD_VARIABLES: Final = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
_ENTRIES: Final = ("clusters", "contexts", "users", "current-context")


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """
    The files to read, and the context to use.

    *paths* is a list as in KUBECONFIG; "" stands for the pod's service account. *context* "": none is set.
    """

    paths: str
    context: str = ""


def find(given: str, *, environment: Mapping[str, str], token: Path = TOKEN) -> Kubeconfig:
    """
    The kubeconfig that *given* (the flag), the *environment* and the files determine.

    Raises :class:`SettingsError` if there is none. Whether a file can be read is for its reader to say.
    """
    if given:
        if not (existing := tuple(_existing(given))):
            raise SettingsError(f"kubeconfig {given!r}: want a file that exists")
        return Kubeconfig(os.pathsep.join(existing), _current_context(existing))
    listed = environment.get("KUBECONFIG", "")
    home = _home_config(environment)
    files = tuple(path for path in _existing(listed or home) if _holds_entries(path))
    if files:
        return Kubeconfig(os.pathsep.join(files), _current_context(files))
    if all(environment.get(name) for name in _POD_VARIABLES) and token.exists():
        return Kubeconfig("")
    found = f"KUBECONFIG is {listed!r}, where no file has a cluster" if listed else f"{home} has none"
    raise SettingsError(
        f"no cluster is configured: {found}; set KUBECONFIG to the path of a kubeconfig, or give --kubeconfig. "
        "A pod needs the token of its service account (automountServiceAccountToken)"
    )


def _home_config(environment: Mapping[str, str]) -> str:
    """``~/.kube/config``; the user of a container may have no home."""
    return str(Path(environment.get("HOME") or "/") / ".kube" / "config")


def _existing(paths: str) -> Iterator[str]:
    for path in paths.split(os.pathsep):
        if os.path.exists(path):  # Path.exists() raises in a home that this user may not enter, as in a container
            yield path


def _holds_entries(path: str) -> bool:
    content = _content(path)
    return not isinstance(content, dict) or any(content.get(name) for name in _ENTRIES)


def _current_context(paths: tuple[str, ...]) -> str:
    contents = (_content(path) for path in paths)
    named = (each.get("current-context") for each in contents if isinstance(each, dict))
    return next((str(name) for name in named if name), "")


def _content(path: str) -> Any:
    """The content of a file; an empty one is an empty mapping, and one that cannot be read is None."""
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file)
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return {} if content is None else content
