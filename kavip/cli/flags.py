"""The options that several of the commands which ask have, one spelling and one meaning each."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kavip.settings import Settings, listed

F = TypeVar("F", bound=Callable[..., Any])


def filename(**more: Any) -> Callable[[F], F]:
    """``-f``, as *paths*."""
    return click.option(
        "-f",
        "--filename",
        "paths",
        multiple=True,
        type=click.Path(path_type=Path),
        help="file or folder of YAML or JSON; - reads standard input; may be repeated",
        **more,
    )


FILES: Final = filename(required=True)


def homes(command: F) -> F:
    """Where groups count."""
    return click.option(
        "--group-namespaces",
        "homes",
        default="",
        callback=lambda _, __, text: listed(text),
        help="namespaces in which KeepalivedGroups count, comma-separated; empty: all",
    )(command)


def setting(name: str, *, doc: str = "") -> Callable[[F], F]:
    """The setting *name* of ``kavip run``, as an option of the same name."""
    (known,) = (each for each in dataclasses.fields(Settings) if each.name == name)
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        type=click.Choice(known.metadata["choices"]),
        default=known.default,
        show_default=True,
        help=doc or known.metadata["doc"],
    )


def manner(command: F) -> F:
    """What an administrator may have softened or tightened, by the names of the settings."""
    for name in ("allow_missing_group", "external_ips_scope", "ipam"):
        command = setting(name)(command)
    return command


def cluster(command: F) -> F:
    """Which cluster is asked."""
    command = click.option("--context", default="", help="context of the kubeconfig; default: its current one")(command)
    return click.option(
        "--kubeconfig", envvar="KUBECONFIG", default="", help="default: ~/.kube/config, in a pod its account"
    )(command)


LIVE: Final = click.option(
    "--live", is_flag=True, help="judge beside what stands in the cluster, as `kubectl apply` would (it is only read)"
)
OUTPUT: Final = click.option("-o", "--output", type=click.Choice(("text", "json")), default="text", show_default=True)
