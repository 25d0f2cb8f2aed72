"""
Options that several commands have, each with one spelling and one meaning.
"""

import dataclasses
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kavip.settings import Settings, split_names

F = TypeVar("F", bound=Callable[..., Any])


class _InputPath(click.Path):
    """A path that is not empty: ``Path("")`` is the current folder, and a variable of a script may not be set."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("empty: want a file or a folder (. is the current one)", param, ctx)
        return super().convert(value, param, ctx)


def filename(**more: Any) -> Callable[[F], F]:
    """The option ``-f``, as *paths*."""
    return click.option(
        "-f",
        "--filename",
        "paths",
        multiple=True,
        type=_InputPath(path_type=Path),
        help="file or folder of YAML or JSON; - for standard input; may be repeated",
        **more,
    )


FILES: Final = filename(required=True)


def group_namespaces(command: F) -> F:
    """The namespaces whose groups kavip uses."""
    return click.option(
        "--group-namespaces",
        "group_namespaces",
        default="",
        callback=lambda _, __, text: _namespaces(text),
        help="namespaces whose KeepalivedGroups kavip uses, comma-separated; empty: all",
    )(command)


def _namespaces(text: str) -> tuple[str, ...]:
    """The names in *text*; raises :class:`BadInput` for one that no namespace has: it would select no group."""
    from kavip.api.naming import is_name
    from kavip.errors import BadInput

    found = split_names(text)
    for name in found:
        if not is_name(name):
            raise BadInput("--group-namespaces", name, "want the name of a namespace")
    return found


def readable_namespace(command: F) -> F:
    """The namespace to read if the user may not read all."""
    return click.option(
        "-n",
        "--namespace",
        default="",
        help="namespace for kinds that you may not list in all namespaces; default: that of the context",
    )(command)


def setting(name: str, *, doc: str = "") -> Callable[[F], F]:
    """The setting *name* of ``kavip run`` as an option of the same name."""
    (known,) = (each for each in dataclasses.fields(Settings) if each.name == name)
    return click.option(
        f"--{name.replace('_', '-')}",
        name,
        type=click.Choice(choices) if (choices := known.metadata["choices"]) else str,
        default=known.default,
        show_default=True,
        help=doc or known.metadata["doc"],
    )


def policy(command: F) -> F:
    """The settings of admission, by their names."""
    for name in ("allow_missing_group", "external_ips_scope", "ipam", "template_namespaces", "template_privileges"):
        command = setting(name)(command)
    return command


def cluster(command: F) -> F:
    """The cluster that is read."""
    command = click.option("--context", default="", help="context of the kubeconfig; default: the current one")(command)
    return click.option(
        "--kubeconfig", default="", help="default: KUBECONFIG, ~/.kube/config, or the service account in a pod"
    )(command)


LIVE: Final = click.option(
    "--live", is_flag=True, help="apply the files to the objects of the cluster, which is only read"
)
OUTPUT: Final = click.option(
    "-o", "--output", type=click.Choice(("text", "json", "yaml")), default="text", show_default=True
)


def problem_style() -> Callable[[str], str]:
    """How a line about a problem is shown: in red on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    return str if is_plain else partial(click.style, fg="red")


def terminal_columns() -> int:
    """How wide the terminal is that shows standard output; 0 if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
