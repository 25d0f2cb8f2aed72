"""
The command line: thin; each command imports only what it runs, so that the agent stays small.

Exit status: 0 done, 1 the answer is no (something refused), 2 the question was wrong (flag, variable, file).
"""

import asyncio
import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kavip import __version__, names
from kavip.errors import KavipError, SettingsError
from kavip.settings import Settings, listed, unknown_variables

F = TypeVar("F", bound=Callable[..., Any])


def options_of(settings: type, *, prefix: str = names.ENV_PREFIX) -> Callable[[F], F]:
    """One option for each field of the dataclass *settings*: ``--log-level`` and ``KAVIP_LOG_LEVEL``."""

    def decorate(command: F) -> F:
        for each in reversed(dataclasses.fields(settings)):
            choices, is_flag = each.metadata["choices"], isinstance(each.default, bool)
            command = click.option(
                f"--{each.name.replace('_', '-')}",
                each.name,
                envvar=f"{prefix}_{each.name.upper()}",
                show_envvar=True,
                default=each.default,
                show_default=not is_flag,
                is_flag=is_flag,
                type=click.Choice([str(choice) for choice in choices]) if choices else type(each.default),
                help=each.metadata["doc"],
            )(command)
        return command

    return decorate


class _Commands(click.Group):
    """The commands; the agent's options need its modules, which nobody else wants to wait for."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted([*super().list_commands(context), "agent"])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return _agent() if name == "agent" else super().get_command(context, name)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="kavip")
def cli() -> None:
    """LoadBalancer Services on bare metal: admission webhook, IPAM and keepalived controller."""


def _serve(roles: frozenset[str], given: dict[str, Any]) -> None:
    from kavip import app, telemetry

    _refuse_unknown_variables(Settings)
    settings = Settings(**given)
    telemetry.configure_logging(settings.log_level, settings.log_format)
    sys.exit(asyncio.run(app.run(settings, roles=roles)))


def _refuse_unknown_variables(settings: type, *, prefix: str = names.ENV_PREFIX) -> None:
    known = {f"{prefix}_{each.name.upper()}" for each in dataclasses.fields(settings)}
    if lines := unknown_variables(dict(os.environ), known):
        raise SettingsError("; ".join(lines))


@cli.command()
@options_of(Settings)
def run(**given: Any) -> None:
    """Serve admission on every replica, and run the controller on the one that leads."""
    _serve(frozenset({"webhook", "controller"}), given)


@cli.command()
@options_of(Settings)
def webhook(**given: Any) -> None:
    """Serve admission only."""
    _serve(frozenset({"webhook"}), given)


@cli.command()
@options_of(Settings)
def controller(**given: Any) -> None:
    """Run the controller only."""
    _serve(frozenset({"controller"}), given)


def _agent() -> click.Command:
    from kavip import telemetry
    from kavip.agent.run import PREFIX, AgentSettings, main_async

    @click.command()
    @options_of(AgentSettings, prefix=PREFIX)
    def agent(**given: Any) -> None:
        """Keep keepalived on this node in step with its group (runs in the group's DaemonSet)."""
        _refuse_unknown_variables(AgentSettings, prefix=PREFIX)
        settings = AgentSettings(**given)
        telemetry.configure_logging(settings.log_level, settings.log_format)
        sys.exit(asyncio.run(main_async(settings)))

    return agent


def _files(command: F) -> F:
    return click.option(
        "-f",
        "--filename",
        "paths",
        multiple=True,
        required=True,
        type=click.Path(path_type=Path),
        help="file or folder of YAML or JSON; - reads standard input; may be repeated",
    )(command)


def _homes(command: F) -> F:
    return click.option(
        "--group-namespaces",
        "homes",
        default="",
        callback=lambda _, __, text: listed(text),
        help="namespaces in which KeepalivedGroups count, comma-separated; empty: all",
    )(command)


def _manner(command: F) -> F:
    """What an administrator may have softened or tightened, by the names of the settings."""
    known = {each.name: each for each in dataclasses.fields(Settings)}
    for name in ("allow_missing_group", "external_ips_scope"):
        choices, text = known[name].metadata["choices"], known[name].metadata["doc"]
        option = click.option(
            f"--{name.replace('_', '-')}",
            name,
            type=click.Choice(choices),
            default=known[name].default,
            show_default=True,
            help=text,
        )
        command = option(command)
    return command


_output = click.option("-o", "--output", type=click.Choice(("text", "json")), default="text", show_default=True)


@cli.command()
@_files
@_homes
@_manner
@_output
def check(paths: tuple[Path, ...], homes: tuple[str, ...], output: str, **manner: str) -> None:
    """
    Say what the admission webhook would refuse of the objects in files.

    Refusals go to standard output, warnings and what cannot be read to standard error. Exit status: 0 nothing is
    refused, 1 something is, 2 a file cannot be read, or there is nothing to judge.
    """
    from kavip import files, offline
    from kavip.webhook.checks import Options

    gathered = files.gather(paths)
    for error in gathered.unread:
        click.echo(f"kavip: {error}", err=True)
    judged = offline.admit((each.object for each in gathered.found), homes=homes, manner=Options(**manner))
    places = {each.key: str(each) for each in gathered.found}
    for line in offline.remarks(judged, places):
        click.echo(line, err=True)
    if output == "json":
        click.echo(json.dumps(offline.refusals(judged), indent=2, sort_keys=True))
    else:
        for line in offline.lines(judged, places):
            click.echo(line)
    sys.exit(2 if gathered.unread else 1 if judged.refused else 0)


@cli.command()
@_files
@_homes
@_manner
@_output
def plan(paths: tuple[Path, ...], homes: tuple[str, ...], output: str, **manner: str) -> None:
    """Say what would be refused, which address each Service gets, and which objects come out, without a cluster."""
    from kavip import files, offline
    from kavip.webhook.checks import Options

    planned = offline.plan(files.load(paths), homes=homes, manner=Options(**manner))
    data = offline.as_data(planned)
    for line in offline.remarks(planned) + offline.lines(planned):
        click.echo(line, err=True)
    if output == "json":
        click.echo(json.dumps(data, indent=2, sort_keys=True))
    else:
        for each in data["services"]:
            told = ", ".join(each["addresses"]) or "; ".join(one["message"] for one in each["conditions"])
            click.echo(f"{each['namespace']}/{each['name']}\t{each['group']}\t{each['pool']}\t{told}")
    sys.exit(1 if planned.refused else 0)


@cli.command()
@_files
@_homes
@click.option("--group", default="", help="ns/name of one group; empty: all")
def render(paths: tuple[Path, ...], homes: tuple[str, ...], group: str) -> None:
    """Print the keepalived.conf of each group in files."""
    from kavip import files, offline

    for key, text in offline.plan(files.load(paths), homes=homes).configurations.items():
        if group in ("", key):
            click.echo(text, nl=False)


@cli.command()
@click.argument("cluster_name")
def vrids(cluster_name: str) -> None:
    """Print the VRIDs that an OpenShift IPI cluster called CLUSTER_NAME takes on its segment."""
    from kavip.vrrp import openshift

    ids = openshift.router_ids(cluster_name)
    click.echo(f"api {ids.api}\ningress {ids.ingress}\ndns {ids.dns} (OpenShift 4.7 and older)")


def main() -> None:
    """Run the command line; errors of our own are one line, exit status 2."""
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        click.echo(f"kavip: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except KavipError as error:
        click.echo(f"kavip: {error}", err=True)
        sys.exit(2)
    except OSError as error:  # an address that is none, a port in use
        click.echo(f"kavip: cannot listen or connect: {error}; see the --*-host and --*-port settings", err=True)
        sys.exit(2)
