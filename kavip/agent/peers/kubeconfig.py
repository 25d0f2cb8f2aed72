"""
The API server and the credential in a kubeconfig, as far as an agent needs them.

The file is read again for each list, so that a renewed token or certificate counts. Certificates are always verified.
Programs that print a credential (``exec``) are refused, because an agent runs no programs of others.
"""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from kavip.agent.peers.client import Server
from kavip.errors import BadInput

_LARGEST: Final = 1 << 20
_REFUSED: Final = ("exec", "auth-provider", "username", "password")
_PORT: Final = 443
_WANT_SERVER: Final = "want https://HOST[:PORT]"


def read_server(path: Path) -> Server:
    """
    The server of the current context in the kubeconfig *path*. Blocks.

    Raises :class:`BadInput` or OSError; neither text holds a credential.
    """
    import yaml  # two megabytes, which agents without such a file do not need

    try:
        config = yaml.safe_load(_read(path))
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: a date that is none, too many digits
        raise BadInput("kubeconfig", path.name, "is not YAML") from None
    context = _named(config, "contexts", _text(config, "current-context"), "context")
    cluster = _named(config, "clusters", _text(context, "cluster"), "cluster")
    user = _named(config, "users", _text(context, "user"), "user")
    if refused := next((key for key in _REFUSED if user.get(key)), ""):
        raise BadInput("kubeconfig", refused, "want token, tokenFile, or a client certificate")
    if cluster.get("insecure-skip-tls-verify"):
        raise BadInput("kubeconfig", "insecure-skip-tls-verify", "want certificate-authority")
    if cluster.get("proxy-url"):
        raise BadInput("kubeconfig", "proxy-url", "want a server that this node reaches without a proxy")
    host, port = _host_and_port(_text(cluster, "server"))
    # of both, the file counts, as for kubectl: it is the one that is renewed
    token = _content(user, "tokenFile", path.parent).decode("ascii", "replace").strip() or _text(user, "token")
    if not all(33 <= ord(character) < 127 for character in token):
        raise BadInput("kubeconfig", "token", "want printable characters without blanks")
    return Server(
        host,
        port,
        _tls(cluster, user, path.parent),
        _text(cluster, "tls-server-name"),
        {"Authorization": f"Bearer {token}"} if token else {},
    )


def _host_and_port(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port, path = parts.hostname, parts.port or _PORT, parts.path
    except ValueError:
        host, port, path = None, 0, ""
    if not host or not url.startswith("https://") or path.strip("/"):
        raise BadInput("kubeconfig server", url.rpartition("@")[2], _WANT_SERVER)  # a password may stand before the @
    return host, port


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    authority = _data(cluster, "certificate-authority", folder)
    certificate, key = _data(user, "client-certificate", folder), _data(user, "client-key", folder)
    try:
        # what is not ASCII is a comment between the certificates, or no PEM at all
        context = ssl.create_default_context(cadata=authority.decode("ascii", "ignore") or None)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the CAs of many clusters lack what Python 3.13 requires
        if certificate:
            _load_chain(context, certificate + b"\n" + key)
    except ssl.SSLError:
        raise BadInput("kubeconfig", "certificates", "want certificates and a key in PEM") from None
    return context


def _load_chain(context: ssl.SSLContext, chain: bytes) -> None:
    """Load *chain* from a file, because OpenSSL takes it from nowhere else; only this user can read it."""
    handle, path = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(chain)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)


def _data(entry: Mapping[str, Any], key: str, folder: Path) -> bytes:
    """The content of *key*: in the kubeconfig itself, or in the file that it names."""
    if not (text := _text(entry, f"{key}-data")):
        return _content(entry, key, folder)
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError:
        raise BadInput("kubeconfig", f"{key}-data", "want base64") from None


def _content(entry: Mapping[str, Any], key: str, folder: Path) -> bytes:
    name = _text(entry, key)
    if not name:
        return b""
    return _read(folder / name)


def _read(path: Path) -> bytes:
    """The content of *path*. A pipe counts as empty: the agent does not wait for a program that writes into it."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        return file.read(_LARGEST) or b""


def _named(config: object, key: str, name: str, inner: str) -> Mapping[str, Any]:
    """The entry *name* of the list *key*."""
    entries = config.get(key) if isinstance(config, dict) else None
    for each in entries if isinstance(entries, list) else ():
        if isinstance(each, dict) and each.get("name") == name and isinstance(found := each.get(inner), dict):
            return found
    raise BadInput("kubeconfig", key, f"want an entry {name!r}")


def _text(entry: object, key: str) -> str:
    value = entry.get(key) if isinstance(entry, dict) else None
    return value if isinstance(value, str) else ""
