"""kavip starts without the parts of kubernetes_asyncio that it does not use."""

import subprocess
import sys

import pytest

from tests.support.manifests import ROOT

PROGRAM = """
import sys
import kavip.app
from kavip.kube import configloader
from kubernetes_asyncio import client
from kubernetes_asyncio.client.configuration import Configuration
assert configloader.Configuration is client.Configuration is Configuration
generated = ("kubernetes_asyncio.client.models.", "kubernetes_asyncio.client.api.")
unused = ("kubernetes_asyncio.watch", "kubernetes_asyncio.dynamic", "dateutil")
print(sum(name.startswith((*generated, *unused)) for name in sys.modules))
"""


@pytest.mark.slow
def test_only_the_configuration_is_loaded() -> None:
    """None of the 800 generated modules is in memory, and the configuration class is the library's own."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
