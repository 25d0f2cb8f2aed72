"""The tutorial and the first commands of README: how they are read, and that they say the same."""

import re
import shlex
from pathlib import Path

import pytest

from hack.site.pages import chapters
from hack.tutorial import pages
from hack.tutorial.alike import is_alike
from hack.tutorial.pages import Shown

PAGE = """# A page

```console
$ kubectl get nodes
NAME   AGE
n1     5s
$ kubectl annotate node n1 \\
  a=b
```

```sh
make cluster
```

```console
$ true
```
"""
EDGE = (pages.ROOT / "docs" / "examples" / "edge.yaml").read_text()


def test_commands_are_read_with_their_outputs() -> None:
    """A command may go on in the next line, and may print nothing; blocks that are no console are left out."""
    assert pages.shown(PAGE) == [
        Shown("kubectl get nodes", "NAME   AGE\nn1     5s\n"),
        Shown("kubectl annotate node n1 \\\n  a=b", ""),
        Shown("true", ""),
    ]


def test_outputs_are_written_into_the_page() -> None:
    """The commands and the text stay."""
    written = pages.with_outputs(PAGE, ["NAME\n", "done\n", ""])
    assert pages.with_outputs(written, [each.output for each in pages.shown(PAGE)]) == PAGE
    assert [each.output for each in pages.shown(written)] == ["NAME\n", "done\n", ""]


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("NAME   AGE\nn1     5s\n", "NAME  AGE\nn1  3m12s\n"),
        ("web-5c7f9d8b6c-x2x7k\n", "web-7d64c8fd9b-zzzzz\n"),
        ("web  10.96.1.2  192.0.2.128  80:31552/TCP  2s\n", "web  10.96.13.70  192.0.2.128  80:30001/TCP  14s\n"),
        ("since 2026-05-01T03:04:05Z\n", "since 2027-01-01T00:00:00Z\n"),
        ("NAME: kavip\n...\n", "NAME: kavip\nLAST DEPLOYED: Thu Nov 26\n\nNOTES:\n"),
        ("a\n...\nz\n", "a\nz\n"),
        ("", ""),
    ],
)
def test_what_differs_in_each_run_is_alike(page: str, printed: str) -> None:
    """Ages, random names, addresses of the cluster network, times, and lines that the page leaves out."""
    assert is_alike(page, printed)


@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("192.0.2.128  default/web  n1\n", "192.0.2.128  default/web  n2\n"),
        ("web  10.96.1.2  192.0.2.128\n", "web  10.96.1.2  192.0.2.129\n"),
        ("a\n...\nz\n", "a\nb\n"),
        ("a\n", "a\nb\n"),
        ("", "error\n"),
        ("kavip-webhook  2/2\n", "kavip-webhook  1/2\n"),
    ],
)
def test_another_output_is_not_alike(page: str, printed: str) -> None:
    """Another node, VIP, number or line."""
    assert not is_alike(page, printed)


def test_the_tutorial_is_the_first_page() -> None:
    """In the navigation of the site, and so in the list of README."""
    assert chapters(pages.README.read_text())[0].pages[0] == "docs/tutorial"


def test_the_tutorial_begins_with_the_commands_of_the_readme() -> None:
    """Those that give the first VIP, in their order, with the image that `make image` builds."""
    readme = [_words(each) for each in pages.first_vip(pages.README.read_text())]
    tutorial = [_words(each.command) for each in pages.shown(pages.TUTORIAL.read_text())]
    assert len(readme) == 5
    assert [each for each in tutorial if each in readme] == readme


def _words(command: str) -> list[str]:
    return shlex.split(command.replace("REGISTRY/", "localhost/").replace("image.tag=0.2.0", "image.tag=dev"))


@pytest.mark.parametrize("page", [pages.README, pages.TUTORIAL], ids=lambda page: page.name)
def test_the_first_manifests_are_those_of_the_examples(page: Path) -> None:
    """The first YAML block is the file that the commands apply."""
    assert re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)[0] == EDGE
