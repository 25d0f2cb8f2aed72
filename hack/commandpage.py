"""The page of commands: what ``--help`` prints for each of them."""

from collections.abc import Iterator
from typing import Final

import click

from kavip.cli.main import cli

WIDTH: Final = 96


def page() -> str:
    """The page as Markdown."""
    lines = [
        "# Commands",
        "",
        "`kubectl kavip` is the same program as `kavip`. Outside a pod, the commands that read a cluster",
        "use `--kubeconfig`, then `KUBECONFIG`, then `~/.kube/config`, and the rights of that user.",
        "[settings.md](settings.md) has the flags of `kavip run`, `webhook`, `controller` and `agent`.",
        "",
        "On a terminal, `kavip status` and `doctor` print rows about problems in red. With the variable",
        "`NO_COLOR` they print no colours. `kavip status` and `plan` wrap messages there in their column.",
        "`kavip drain --wait`, `convert` and `import` say how far they are.",
        "",
        "`source <(kavip completion bash)` completes commands and options in bash, zsh likewise, and",
        "`kavip completion fish | source` in fish. kubectl completes `kubectl kavip` if the program",
        "`kubectl_complete-kavip` is on the PATH; `pip install .` in a checkout installs it.",
        "",
    ]
    program = click.Context(cli, info_name="kavip", terminal_width=WIDTH, help_option_names=["-h", "--help"])
    for name, command, context in commands(cli, program):
        lines += [f"## {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(lines)


def commands(group: click.Group, above: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Each command of *group* that is not a server, by its whole name; sorted."""
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=above, terminal_width=WIDTH)
        if isinstance(command, click.Group):
            yield from commands(command, context)
        elif context.command_path.removeprefix("kavip ") not in ("run", "webhook", "controller", "agent"):
            yield context.command_path, command, context
