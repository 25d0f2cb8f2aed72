"""``kavip render`` as a process: what it refuses, and its exit status."""

import json
import subprocess
import sys

import pytest

from tests.cli.commands.test_check import GROUPS, NODE, POOLS, SHOP, service
from tests.support.manifests import ROOT

pytestmark = pytest.mark.slow

STATIC = ("--static", "--image", "registry.example/kavip:1", "--node", "n1=192.0.2.11")


def render(*flags: str, given: str) -> subprocess.CompletedProcess[str]:
    """``kavip render`` of *given* on standard input."""
    command = [sys.executable, "-m", "kavip", "render", "-f", "-", *flags]
    return subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)


@pytest.mark.parametrize("flags", [(), STATIC])
def test_a_refused_group_is_named(flags: tuple[str, ...]) -> None:
    """The refusal is on standard error, with and without --static, and the exit status is 1."""
    done = render(*flags, given=GROUPS.replace("eth0", "eth0 x"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("KeepalivedGroup lb/edge: refused: spec.interface: 'eth0 x': want ")
    assert done.stderr.count("\n") == 1


def test_a_refused_service_is_named_beside_the_text_of_its_group() -> None:
    """The text has the VIPs of the other Services."""
    good, bad = service("good", **{"kavip.io/pool": "edge"}), service("bad", **{"kavip.io/pool": "egde"})
    around = "---\n".join((GROUPS, POOLS, SHOP, NODE))
    done = render(given=f"{around}---\n{json.dumps(good)}\n---\n{json.dumps(bad)}")
    assert done.returncode == 1
    assert done.stdout.count("vrrp_instance shop/good") == 1
    assert "shop/bad" not in done.stdout
    assert done.stderr.startswith("Service shop/bad: refused: metadata.annotations[kavip.io/pool]: ")


@pytest.mark.parametrize("flags", [(), STATIC, ("--group", "lb/edge")])
def test_files_without_a_group_are_an_error(flags: tuple[str, ...]) -> None:
    """There is nothing to print, so probably a file is missing."""
    done = render(*flags, given=json.dumps(service("web")))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kavip: --filename: no KeepalivedGroup in these files; name the file of the group too\n"


def test_what_is_accepted_is_printed() -> None:
    """The exit status is 0, and there is no remark."""
    done = render(given=GROUPS)
    assert (done.returncode, done.stderr) == (0, "")
    assert "lb/edge" in done.stdout
