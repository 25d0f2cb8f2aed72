"""
Where the API server is, and how to prove who we are: kubernetes_asyncio's configuration, loaded and kept fresh.

Client certificates, tokens, exec plugins and the pod's service account are its business. Whatever is wrong with a
kubeconfig is a :class:`SettingsError` in one line that never quotes the file: it holds keys.
"""

import asyncio
import os
import ssl
from typing import Final

import structlog
import yaml

from kavip.errors import SettingsError, Unavailable
from kavip.kube.lean import ConfigException, Configuration, KubeConfigLoader, load_incluster_config, load_kube_config

log = structlog.get_logger()

_PLUGIN_SECONDS: Final = 30.0
_REFRESH_SECONDS: Final = 60.0
_RENEWABLE: Final = ("exec", "auth-provider", "tokenFile")


class Credentials:
    """
    The API server's address, TLS context and tokens. An empty *kubeconfig* means the pod's service account.

    *kubeconfig* may name several files, as KUBECONFIG may; *context*: another one than the current.
    """

    def __init__(self, kubeconfig: str | None, *, context: str = "") -> None:
        """Nothing is read before :meth:`load`."""
        self._kubeconfig, self._context = kubeconfig or "", context
        self._configuration = Configuration()
        self._loader: KubeConfigLoader | None = None
        self.tls: ssl.SSLContext
        """The TLS context of these credentials, once they are loaded."""

    async def load(self) -> None:
        """Read the kubeconfig or the service account; in a thread, because files and plugins may take their time."""
        try:
            await asyncio.to_thread(lambda: asyncio.run(self._read()))
        except Exception as error:  # files of any content, plugins of anybody's: whatever fails there is told by name
            source = f"kubeconfig {self._kubeconfig!r}" if self._kubeconfig else "the pod's service account"
            raise SettingsError(f"{source}: {_told(error)}") from error

    async def _read(self) -> None:
        if self._kubeconfig and not any(os.access(path, os.R_OK) for path in self._kubeconfig.split(os.pathsep)):
            raise ConfigException("want a file that exists and can be read")
        async with asyncio.timeout(_PLUGIN_SECONDS):
            if self._kubeconfig:
                self._loader = await load_kube_config(
                    self._kubeconfig,
                    context=self._context or None,
                    client_configuration=self._configuration,
                    persist_config=False,
                )
            else:
                load_incluster_config(client_configuration=self._configuration)  # type: ignore[no-untyped-call]  # it has none
        self.tls = self._tls()

    async def _renew(self, loader: KubeConfigLoader) -> None:
        async with asyncio.timeout(_PLUGIN_SECONDS):
            await loader.load_and_set(self._configuration)

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._configuration.host).rstrip("/")

    @property
    def namespace(self) -> str:
        """The namespace that the context names, or ""."""
        context = self._loader.current_context if self._loader else None
        return str(context["context"].get("namespace") or "") if context else ""

    @property
    def proxy(self) -> str | None:
        """The kubeconfig's ``proxy-url``. HTTPS_PROXY is ignored: Python does not read CIDRs in NO_PROXY."""
        return str(self._configuration.proxy) if self._configuration.proxy else None

    @property
    def server_hostname(self) -> str | None:
        """The name to expect in the server's certificate, where it is not the URL's."""
        return str(self._configuration.tls_server_name) if self._configuration.tls_server_name else None

    def _tls(self) -> ssl.SSLContext:
        given = self._configuration
        context = ssl.create_default_context(cafile=given.ssl_ca_cert)
        # Python 3.13 demands extensions that the CAs of many clusters lack.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if given.cert_file:
            context.load_cert_chain(given.cert_file, given.key_file)
        if not given.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    async def authorization(self) -> str:
        """
        The value of the Authorization header, or "".

        The library's hook reads the pod's token again each minute: a kibibyte from memory, so it needs no thread.
        """
        try:
            value = await self._configuration.get_api_key_with_prefix("BearerToken")
        except (OSError, ConfigException) as error:
            raise Unavailable(0, "NoToken", f"cannot read the service account's token: {_told(error)}") from error
        return value.strip() if value else ""

    async def keep_fresh(self) -> None:
        """Renew what a kubeconfig's plugin or token file gives, for ever; return at once where there is nothing."""
        loader = self._loader
        user = getattr(loader, "_user", None)  # the library's own refresh_token() looks there, too
        if loader is None or user is None or not any(way in user for way in _RENEWABLE):
            return
        failing = False
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            try:
                await asyncio.to_thread(lambda: asyncio.run(self._renew(loader)))
            except Exception as error:  # noqa: BLE001 - a plugin that fails now may work in a minute; the old token stays
                if not failing:
                    log.warning("credentials not renewed", error=_told(error))
                failing = True
            else:
                failing = False


def _told(error: Exception) -> str:
    """*error* in one line without file contents: only the library's own words are known to have none."""
    match error:
        case ConfigException():
            words = " ".join(str(error).split()).partition("{")[0]  # it quotes whole entries, keys and all
            return words.rstrip("/")[:300]
        case yaml.MarkedYAMLError() if error.problem_mark:
            return f"not YAML, line {error.problem_mark.line + 1}"
        case yaml.YAMLError() | UnicodeDecodeError():
            return "not YAML"
        case OSError(strerror=str(why), filename=name):
            return f"{why}: {name}" if name else why
        case TimeoutError():
            return f"no answer within {_PLUGIN_SECONDS:g} s from the plugin that it names"
        case AttributeError() | KeyError() | TypeError() | ValueError():
            return "want a kubeconfig: clusters, users, contexts and a current-context"
    return f"cannot be read ({type(error).__name__})"
