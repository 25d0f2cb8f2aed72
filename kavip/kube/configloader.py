"""
kubernetes_asyncio's configuration without the 800 generated modules that its package ``client`` imports.

kavip uses none of these models; they cost 36 MiB and a third of a second at each start (measured with version 36). So
this module registers its own ``client`` package with the real path. The classes that are needed can be imported from
it by name; the others cannot.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

_PACKAGE: Final = "kubernetes_asyncio"
_CLIENT: Final = f"{_PACKAGE}.client"
_MODULES: Final = {"ApiClient": f"{_CLIENT}.api_client", "Configuration": f"{_CLIENT}.configuration"}


class _ClientPackage(ModuleType):
    """The package ``client`` with two classes."""

    def __getattr__(self, name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"{_CLIENT}.{name} is not loaded; see {__name__}")
        return getattr(import_module(_MODULES[name]), name)


def _install() -> None:
    spec = find_spec(_PACKAGE)
    if spec is None or _CLIENT in sys.modules:  # the whole package is loaded already
        return
    client = _ClientPackage(_CLIENT)
    client.__path__ = [f"{place}/client" for place in spec.submodule_search_locations or ()]
    sys.modules[_CLIENT] = client
    sys.modules[f"{_CLIENT}.models"] = ModuleType(f"{_CLIENT}.models")


_install()

from kubernetes_asyncio.client import Configuration as Configuration  # noqa: E402 - after _install()
from kubernetes_asyncio.config import ConfigException as ConfigException  # noqa: E402 - after _install()
from kubernetes_asyncio.config import load_incluster_config as load_incluster_config  # noqa: E402
from kubernetes_asyncio.config import load_kube_config as load_kube_config  # noqa: E402
from kubernetes_asyncio.config.kube_config import KubeConfigLoader as KubeConfigLoader  # noqa: E402
