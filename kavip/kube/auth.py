"""
The address of the API server and kavip's credentials: kubernetes_asyncio's configuration, loaded and refreshed.

The library handles client certificates, tokens, exec plugins and the pod's service account. A bad kubeconfig is a
:class:`SettingsError` with one line that never quotes the file, because the file contains keys.
"""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog
import yaml

from kavip.errors import SettingsError, Unavailable
from kavip.kube import kubeconfig as kubectl
from kavip.kube.configloader import (
    ConfigException,
    Configuration,
    KubeConfigLoader,
    load_incluster_config,
    load_kube_config,
)

log = structlog.get_logger()

_PLUGIN_SECONDS: Final = 30.0
_REFRESH_SECONDS: Final = 60.0
_REFRESHABLE: Final = ("exec", "auth-provider", "tokenFile")


class Credentials:
    """
    The API server's address, TLS context and tokens. An empty *kubeconfig* means the one that kubectl would use.

    *kubeconfig* may name several files, as KUBECONFIG may. *context* replaces the current context.
    """

    def __init__(self, kubeconfig: str | None, *, context: str = "") -> None:
        """:meth:`load` reads the files."""
        self._kubeconfig, self._context = kubeconfig or "", context
        self._configuration = Configuration()
        self._loader: KubeConfigLoader | None = None
        self._used: tuple[tuple[str, int, int], ...] = ()  # the versions of files in the TLS context
        self.tls: ssl.SSLContext
        """The TLS context, after :meth:`load`; another one after certificates were renewed."""

    async def load(self) -> None:
        """Read the kubeconfig or the service account in a thread, because files and plugins may block."""
        try:
            await asyncio.to_thread(lambda: asyncio.run(self._read()))
        except SettingsError:
            raise
        except Exception as error:  # any error of any file or plugin becomes one line
            source = f"kubeconfig {self._kubeconfig!r}" if self._kubeconfig else "the pod's service account"
            raise SettingsError(f"{source}: {_redacted(error)}") from error

    async def _read(self) -> None:
        found = kubectl.find(self._kubeconfig, environment=os.environ)
        self._kubeconfig = found.paths
        async with asyncio.timeout(_PLUGIN_SECONDS):
            if found.paths:
                self._loader = await load_kube_config(
                    found.paths,
                    context=self._context or found.context or None,
                    client_configuration=self._configuration,
                    persist_config=False,
                )
            else:
                load_incluster_config(client_configuration=self._configuration)  # type: ignore[no-untyped-call]  # it has none
        self._used = self._versions()
        self.tls = self._tls_context()

    async def _refresh(self, loader: KubeConfigLoader) -> None:
        async with asyncio.timeout(_PLUGIN_SECONDS):
            await loader.load_and_set(self._configuration)

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._configuration.host).rstrip("/")

    @property
    def namespace(self) -> str:
        """The namespace of the context, or ""."""
        context = self._loader.current_context if self._loader else None
        return str(context["context"].get("namespace") or "") if context else ""

    @property
    def proxy(self) -> str | None:
        """The kubeconfig's ``proxy-url``. HTTPS_PROXY is ignored, because Python supports no CIDRs in NO_PROXY."""
        return str(self._configuration.proxy) if self._configuration.proxy else None

    @property
    def server_hostname(self) -> str | None:
        """The expected name in the server's certificate, if it is not the host of the URL."""
        return str(self._configuration.tls_server_name) if self._configuration.tls_server_name else None

    def _tls_context(self) -> ssl.SSLContext:
        given = self._configuration
        context = ssl.create_default_context(cafile=given.ssl_ca_cert)
        # Python 3.13 requires extensions that the CAs of many clusters lack.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if given.cert_file:
            context.load_cert_chain(given.cert_file, given.key_file)
        if not given.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    async def _renew_tls(self) -> None:
        """Make a new TLS context if a file was renewed; connections of the old one take no further request."""
        renewed = await asyncio.to_thread(self._versions)
        if renewed != self._used:
            self.tls = await asyncio.to_thread(self._tls_context)
            self._used = renewed

    def _versions(self) -> tuple[tuple[str, int, int], ...]:
        """The files with certificates, keys and CAs, with what changes when they are renewed."""
        given = self._configuration
        paths = filter(None, (given.cert_file, given.key_file, given.ssl_ca_cert))
        return tuple((str(path), *_version_of(path)) for path in paths)

    async def authorization(self) -> str:
        """
        The value of the Authorization header, or "".

        The library reads the pod's token again each minute. The file is a kibibyte in memory, so no thread is needed.
        """
        try:
            value = await self._configuration.get_api_key_with_prefix("BearerToken")
        except (OSError, ConfigException) as error:
            raise Unavailable(0, "NoToken", f"cannot read the service account's token: {_redacted(error)}") from error
        return value.strip() if value else ""

    async def keep_fresh(self) -> None:
        """Refresh, until cancelled, what plugins and files provide: tokens, client certificates, CAs."""
        loader = self._loader
        user = getattr(loader, "_user", None) or {}  # the library's own refresh_token() uses it too
        steps: list[Callable[[], Awaitable[None]]] = [self._renew_tls]
        if loader is not None and any(kind in user for kind in _REFRESHABLE):
            steps.insert(0, partial(asyncio.to_thread, lambda: asyncio.run(self._refresh(loader))))
        is_failing = False
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            problems = []
            for step in steps:
                try:
                    await step()
                except Exception as error:  # noqa: BLE001 - it may work again in a minute; what was read stays
                    problems.append(_redacted(error))
            if problems and not is_failing:
                log.warning("credentials refresh failed", error="; ".join(problems))
            is_failing = bool(problems)


def _version_of(path: str) -> tuple[int, int]:
    """What changes when the file *path* is renewed; zeros without one."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns


def _redacted(error: Exception) -> str:
    """*error* as one line without content of files."""
    match error:
        case ConfigException():
            words = " ".join(str(error).split()).partition("{")[0]  # it quotes whole entries with their keys
            return words.rstrip("/")[:300]
        case yaml.MarkedYAMLError() if error.problem_mark:
            return f"not YAML, line {error.problem_mark.line + 1}"
        case yaml.YAMLError() | UnicodeDecodeError():
            return "not YAML"
        case OSError(strerror=str(why), filename=name):
            return f"{why}: {name}" if name else why
        case TimeoutError():
            return f"no answer within {_PLUGIN_SECONDS:g} s from its exec plugin"
        case AttributeError() | KeyError() | TypeError() | ValueError():
            return "want a kubeconfig: clusters, users, contexts and a current-context"
    return f"cannot be read ({type(error).__name__})"
