"""
The program, and the commands that serve: run, webhook, controller, agent.

Each command imports only what it runs, so that the agent stays small. Exit status: 0 done, 1 the answer is no (an
object is refused), 2 the command line is wrong (flag, variable, file).
"""

import asyncio
import dataclasses
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kavip import __version__, names
from kavip.cli import commands
from kavip.cli.commands import shellcompletion
from kavip.cli.printing import echo
from kavip.errors import BadFiles, KavipError, SettingsError
from kavip.settings import Settings, unknown_variables

F = TypeVar("F", bound=Callable[..., Any])
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def options_of(settings: type, *, prefix: str = names.ENV_PREFIX) -> Callable[[F], F]:
    """One option for each field of the dataclass *settings*: ``--log-level`` and ``KAVIP_LOG_LEVEL``."""

    def decorate(command: F) -> F:
        for each in reversed(dataclasses.fields(settings)):
            choices, is_flag = each.metadata["choices"], isinstance(each.default, bool)
            command = click.option(
                f"--{each.name.replace('_', '-')}",
                each.name,
                envvar=[f"{prefix}_{each.name.upper()}", *each.metadata["variables"]],
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
    """The commands. The agent's options need its modules, which only the command ``agent`` imports."""

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
    """Serve admission; run the controller on the leader."""
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
    from kavip.agent.main import PREFIX, AgentSettings, main_async

    @click.command()
    @options_of(AgentSettings, prefix=PREFIX)
    def agent(**given: Any) -> None:
        """Run keepalived on this node for its group."""
        _refuse_unknown_variables(AgentSettings, prefix=PREFIX)
        settings = AgentSettings(**given)
        telemetry.configure_logging(settings.log_level, settings.log_format)
        sys.exit(asyncio.run(main_async(settings)))

    return agent


for _command in commands.ALL:
    cli.add_command(_command)


def main() -> None:
    """Run the command line; each error of kavip is one line, with exit status 2."""
    _open_closed_streams()
    try:
        cli.main(standalone_mode=False, complete_var=shellcompletion.VARIABLE)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        echo(f"kavip: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except KavipError as error:
        for each in error.errors if isinstance(error, BadFiles) else (error,):
            echo(f"kavip: {each}", err=True)
        sys.exit(2)
    except OSError as error:  # such as an invalid address or a port in use
        if error.errno in _NO_ROOM:
            echo(f"kavip: cannot write: {error.strerror}", err=True)
        else:
            echo(f"kavip: cannot listen or connect: {error}; see the --*-host and --*-port settings", err=True)
        sys.exit(2)


def _open_closed_streams() -> None:
    """A stream that the caller has closed (``>&-``) is None in Python; write to nowhere instead."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the process ends


def complete_for_kubectl() -> None:
    """``kubectl_complete-kavip WORD...``: kubectl calls it to complete the last word of ``kubectl kavip WORD...``."""
    for line in shellcompletion.kubectl_lines(cli, sys.argv[1:]):
        click.echo(line)
