"""
kubernetes_asyncio's configuration without the rest of the library, which its packages import.

kavip uses neither the 800 generated models, which cost 36 MiB and a third of a second at each start (measured with
version 36), nor clients, watches and time zones. So this module registers empty packages with the real paths. The
modules below them can be imported by their own names.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

_PACKAGE: Final = "kubernetes_asyncio"
_CLIENT: Final = f"{_PACKAGE}.client"


class _ClientPackage(ModuleType):
    """The package ``client`` with the class that the configuration needs, and the name of one that it does not call."""

    class ApiClient:
        """kavip has its own client."""

    def __getattr__(self, name: str) -> Any:
        if name != "Configuration":
            raise AttributeError(f"{_CLIENT}.{name} is not loaded; see {__name__}")
        return import_module(f"{_CLIENT}.configuration").Configuration


def _install() -> None:
    if _PACKAGE in sys.modules:  # the whole package is loaded already
        return
    spec = find_spec(_PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    library, client = ModuleType(_PACKAGE), _ClientPackage(_CLIENT)
    library.__path__, client.__path__ = places, [f"{place}/client" for place in places]
    sys.modules[_PACKAGE], sys.modules[_CLIENT] = library, client


_install()

from kubernetes_asyncio.client import Configuration as Configuration  # noqa: E402 - after _install()
from kubernetes_asyncio.config import ConfigException as ConfigException  # noqa: E402 - after _install()
from kubernetes_asyncio.config import load_incluster_config as load_incluster_config  # noqa: E402
from kubernetes_asyncio.config import load_kube_config as load_kube_config  # noqa: E402
from kubernetes_asyncio.config.kube_config import KubeConfigLoader as KubeConfigLoader  # noqa: E402
