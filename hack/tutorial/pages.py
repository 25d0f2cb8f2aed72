"""The commands of a page: ``console`` blocks with the output of each command, and ``sh`` blocks without."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TUTORIAL: Final = ROOT / "docs" / "tutorial.md"
README: Final = ROOT / "README.md"
_CONSOLE: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL: Final = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT: Final = "$ "


@dataclass(frozen=True, slots=True)
class Shown:
    """A command, and the output that the page shows."""

    command: str
    output: str


def shown(text: str) -> list[Shown]:
    """The commands in the console blocks of the page *text*, in their order."""
    return [each for block in _CONSOLE.findall(text) for each in _commands(block)]


def with_outputs(text: str, outputs: Sequence[str]) -> str:
    """The page *text* with other *outputs*, one for each command."""
    left = iter(outputs)

    def block(match: re.Match[str]) -> str:
        commands = [each.command for each in _commands(match[1])]
        parts = (
            f"{_PROMPT}{command}\n{output}"
            for command, output in zip(commands, islice(left, len(commands)), strict=True)
        )
        return f"```console\n{''.join(parts)}```"

    return _CONSOLE.sub(block, text)


def first_vip(readme: str) -> list[str]:
    """The commands of README that give the first VIP: those of the block that installs kavip."""
    (block,) = (each for each in _SHELL.findall(readme) if each.startswith("helm install "))
    return [line.partition("#")[0].rstrip() for line in block.splitlines()]


def _commands(block: str) -> Iterator[Shown]:
    """The commands of one block; a line that ends with a backslash continues on the next one."""
    command, output = "", ""
    for line in block.splitlines(keepends=True):
        if command.endswith("\\"):
            command += f"\n{line.rstrip()}"
        elif line.startswith(_PROMPT):
            if command:
                yield Shown(command, output)
            command, output = line.removeprefix(_PROMPT).rstrip(), ""
        else:
            output += line
    if command:
        yield Shown(command, output)
