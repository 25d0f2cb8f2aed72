"""
``kavip collect``.
"""

import asyncio
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kavip.cli import flags
from kavip.cli.printing import echo

if TYPE_CHECKING:
    from collections.abc import Collection

    from kavip.cli.views.bundle.contents import Missing

_TAIL: Final = 5_000
_TIMEOUT: Final = 120.0  # seconds
_DURATION: Final = re.compile(r"(?:(\d{1,5})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?")
_SHOWN: Final = 20  # missing things that are printed


def _seconds(_: click.Context, __: click.Parameter, text: str) -> int:
    found = _DURATION.fullmatch(text)
    hours, minutes, seconds = (int(each or 0) for each in found.groups()) if found else (0, 0, 0)
    total = hours * 3600 + minutes * 60 + seconds
    if text != "0" and not total:
        raise click.BadParameter("want a duration, such as 5s, 2m or 3h")
    return total


@click.command()
@click.option(
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="file to write; - for standard output; default: kavip-TIME.tar.gz",
)
@click.option(
    "-n",
    "--namespace",
    default="",
    help="namespace for kinds that you may not list in all namespaces; default: that of the context",
)
@click.option(
    "--since", default="0", callback=_seconds, help="only logs newer than a duration, such as 5s, 2m or 3h; 0: all"
)
@click.option(
    "--tail", type=click.IntRange(min=-1), default=_TAIL, show_default=True, help="lines of each log; -1: all"
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=_TIMEOUT,
    show_default=True,
    help="seconds after which the bundle is written with what there is",
)
@flags.cluster
def collect(
    *, path: Path | None, namespace: str, since: int, tail: int, timeout: float, kubeconfig: str, context: str
) -> None:
    """
    Write a support bundle: what is needed to find out why kavip does not work, without secrets.

    A .tar.gz with the objects that concern kavip, Events, logs, the answers of agents, metrics and the result of kavip
    doctor. Only listed fields are in it. Reads with your rights and changes nothing; what cannot be read is named on
    standard error and in index.json. Exit status: 0 everything is in the bundle, 1 the bundle is written and something
    is missing, 2 there is no bundle: the cluster does not answer, or the file cannot be written.
    """
    from kavip import telemetry
    from kavip.cli.sources.archive import archive, write
    from kavip.cli.sources.bundle import Request, read_bundle
    from kavip.errors import SettingsError

    telemetry.configure_logging("critical", "text")
    name = f"kavip-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    target = path or Path(f"{name}.tar.gz")
    place = target.resolve()  # a link, such as /dev/stdout, is not replaced
    to_stdout = str(path) == "-"
    if to_stdout and sys.stdout.isatty():
        raise click.UsageError("--output -: standard output is a terminal: redirect it to a file")
    if not to_stdout and not os.access(place.parent, os.W_OK):
        raise SettingsError(f"--output {target}: there is no folder {place.parent} that you may write to")
    if not to_stdout and target.exists() and not target.is_file():
        raise SettingsError(
            f"--output {target}: is no file, and would be replaced; for standard output, say --output -"
        )
    request = Request(namespace=namespace, tail=tail, since=since, timeout=timeout)
    files, missing = asyncio.run(read_bundle(kubeconfig, context=context, request=request, report=_progress))
    packed = archive(files, folder=name)
    if to_stdout:
        sys.stdout.buffer.write(packed)
    else:
        try:
            write(place, packed)
        except OSError as error:
            raise SettingsError(f"--output {target}: cannot be written: {error.strerror}") from None
        echo(str(target))
    _print(missing)
    sys.exit(1 if missing else 0)


def _progress(step: str) -> None:
    """Show what is read now, on a terminal."""
    if sys.stderr.isatty():
        echo(f"kavip: reading {step}", err=True)


def _print(missing: "Collection[Missing]") -> None:
    for each in sorted(missing)[:_SHOWN]:
        echo(f"kavip: missing: {each.what}: {each.why}", err=True)
    if len(missing) > _SHOWN:
        echo(f"kavip: missing: {len(missing) - _SHOWN} more, see index.json", err=True)
