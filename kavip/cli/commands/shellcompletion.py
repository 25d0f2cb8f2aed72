"""
``kavip completion``, and what ``kubectl`` asks for ``kubectl kavip``.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

PROGRAM: Final = "kavip"
VARIABLE: Final = "_KAVIP_COMPLETE"
"""The shell calls the program with this variable."""
_FILES: Final = 0
_NO_FILES: Final = 4
"""What kubectl does if nothing else completes: it offers files, or none (ShellCompDirective of cobra)."""


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """
    Print the completion for SHELL.

    bash: source <(kavip completion bash). zsh: source <(kavip completion zsh), after compinit. fish: kavip completion
    fish | source. For kubectl kavip, kubectl calls the program kubectl_complete-kavip, if it is on the PATH.
    """
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - the choices are those of click
    click.echo(found(context.find_root().command, {}, PROGRAM, VARIABLE).source())


def kubectl_lines(command: click.Command, words: Sequence[str]) -> Iterator[str]:
    """The answer to kubectl: what completes the last of *words*, and at the end what kubectl does without it."""
    *before, incomplete = words or [""]
    items = ShellComplete(command, {}, PROGRAM, VARIABLE).get_completions(before, incomplete)
    for each in items:
        if each.type == "plain":
            yield f"{each.value}\t{each.help}" if each.help else str(each.value)
    yield f":{_NO_FILES if all(each.type == 'plain' for each in items) else _FILES}"
