"""No message sends a terminal an escape sequence or bidirectional controls of a file, a server or a kubeconfig."""

import ast
from pathlib import Path

import pytest

from kavip.cli.commands.progress import Progress
from kavip.cli.main import main
from kavip.cli.printing import echo
from tests.support.manifests import ROOT

HOSTILE = "x\x1b]0;P\x07\x1b[2J\u202e"
SHOWN = r"x\x1b]0;P\x07\x1b[2J\u202e"
NAMED = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: 5\n"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """The exit status of ``kavip ARGUMENTS``."""
    monkeypatch.setattr("sys.argv", ["kavip", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_lines_stay_and_what_a_terminal_obeys_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """The line of a command in progress is printed in the same way."""
    echo(f"a\tb\n  {HOSTILE}", err=True)
    with Progress() as progress:
        progress.echo(HOSTILE, err=True)
        progress.echo(f"shop/web: {HOSTILE}")
    printed = capsys.readouterr()
    assert printed.err == f"a\tb\n  {SHOWN}\n{SHOWN}\n"
    assert printed.out == f"shop/web: {SHOWN}\n"


@pytest.mark.parametrize("content", [NAMED, f"{NAMED}spec: 6\n", NAMED.replace("5", "{externalIPs: [192.0.2.1]}")])
@pytest.mark.parametrize("command", [("check",), ("plan",), ("convert", "external-ips"), ("import", "metallb")])
def test_the_name_of_a_file_is_one_printable_line(
    content: str,
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also if it is found in a folder."""
    (tmp_path / f"{HOSTILE}\nkavip: fine.yaml").write_text(content)
    run(monkeypatch, *command, "-f", str(tmp_path))
    printed = capsys.readouterr()
    lines = [line for line in (printed.out + printed.err).split("\n") if SHOWN in line]
    assert all(rf"{SHOWN}\nkavip: fine.yaml" in line for line in lines)
    assert all(map(str.isprintable, (printed.out + printed.err).split("\n")))


@pytest.mark.parametrize("key", ['"x\\e]0;P\\a\\e[2J\\u202e"', "x\u202e"])
def test_a_key_that_occurs_twice_is_printable(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """YAML can write any character."""
    (tmp_path / "a.yaml").write_text(f"{NAMED}{key}: 1\n{key}: 2\n")
    assert run(monkeypatch, "check", "-f", str(tmp_path / "a.yaml")) == 2
    assert capsys.readouterr().err.rstrip("\n").isprintable()


def test_a_kubeconfig_is_quoted_in_printable_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its context does not exist."""
    file = tmp_path / "config"
    context = 'current-context: "x\\e]0;P\\a\\e[2J\\u202e"'
    file.write_text(f"apiVersion: v1\nkind: Config\n{context}\ncontexts: []\nclusters: []\nusers: []\n")
    assert run(monkeypatch, "status", "--kubeconfig", str(file)) == 2
    assert SHOWN in (printed := capsys.readouterr().err)
    assert printed.rstrip("\n").isprintable()


def test_no_command_prints_on_standard_error_by_itself() -> None:
    """But for the control sequence of the line that is replaced."""
    found = {
        path.name
        for path in (ROOT / "kavip" / "cli").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "click.echo"
        if any(each.arg == "err" for each in node.keywords)
    }
    assert found == {"printing.py", "progress.py"}
