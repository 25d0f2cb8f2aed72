"""
What a health check requests: the two presets, and URLs in a restricted form.

A URL is written by the owner of a group, and every node requests it. So it is read with a small grammar and built
anew; credentials, fragments, blanks and other forms that clients read differently are refused.
"""

import re
from dataclasses import dataclass
from typing import Final

from kavip.api.address import read_address
from kavip.errors import BadInput

KUBELET: Final = "kubelet"
KUBE_APISERVER: Final = "kube-apiserver"
PRESETS: Final = (KUBELET, KUBE_APISERVER)
NODE_IP: Final = "$(NODE_IP)"
"""As a host: the node's own address."""

KUBELET_URL: Final = "http://127.0.0.1:10248/healthz"
API_PATH: Final = "/readyz"
API_PORT: Final = 6443

_SUCCESS: Final = range(200, 400)
_UNAUTHORIZED: Final = frozenset({401, 403})
"""Answers of an API server with ``--anonymous-auth=false``: it refuses the request, so it is running."""
_SHAPE: Final = (
    f"want {' or '.join(PRESETS)}, or http(s)://HOST[:PORT][/PATH][?QUERY] without a user or password; "
    f"the host is a name, an address, or {NODE_IP}"
)
_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+|\$\(NODE_IP\))(:(?P<port>[1-9][0-9]{0,4}))?"
    r"(?P<path>/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?(?P<query>\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?"
)
_NAME: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\.?"
)
_DIGITS: Final = re.compile(r"[0-9.]+")
_PORTS: Final = {"http": 80, "https": 443}
_MOST_PORT: Final = 2**16 - 1


@dataclass(frozen=True, slots=True)
class CheckTarget:
    """
    One request; *host* has no brackets, *path* includes the query.

    *expected*: the only status that passes; None: 200 to 399, and *refusals*.
    """

    scheme: str
    host: str
    port: int
    path: str = "/"
    refusals: frozenset[int] = frozenset()
    expected: int | None = None

    def passes(self, status: int) -> bool:
        """Whether an answer with *status* passes the check."""
        if self.expected is not None:
            return status == self.expected
        return status in _SUCCESS or status in self.refusals

    @property
    def authority(self) -> str:
        """Host and port, as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeEndpoints:
    """A node's own address, and the address and port of the Service ``kubernetes``; "" if unknown."""

    node_ip: str = ""
    api_host: str = ""
    api_port: int = _PORTS["https"]


def read_url(text: str, field: str) -> CheckTarget:
    """
    The request of *text*, which is a URL and no preset.

    Raises :class:`BadInput` naming *field*.
    """
    match = _URL.fullmatch(text)
    if match is None:
        raise BadInput(field, _without_user(text), _SHAPE)
    host, scheme = match["host"], match["scheme"]
    port = int(match["port"] or _PORTS[scheme])
    if port > _MOST_PORT or not _is_host(host):
        raise BadInput(field, text, _SHAPE)
    return CheckTarget(scheme, host.strip("[]"), port, f"{match['path'] or '/'}{match['query'] or ''}")


def target_of(url: str, here: NodeEndpoints) -> CheckTarget:
    """
    The request of the check *url* on a node.

    ``kube-apiserver`` is the Service ``kubernetes``, as pods on the node reach it; if that is unknown, the API
    server on the node itself. Raises :class:`BadInput` if no address is known.
    """
    if url == KUBELET:
        return read_url(KUBELET_URL, "url")
    if url == KUBE_APISERVER:
        host, port = (here.api_host, here.api_port) if here.api_host else (here.node_ip, API_PORT)
        if read_address(host) is None:
            raise BadInput("url", url, "this node does not know the API server's address; want a URL")
        return CheckTarget("https", host, port, API_PATH, _UNAUTHORIZED)
    target = read_url(url, "url")
    if target.host != NODE_IP:
        return target
    if read_address(here.node_ip) is None:
        raise BadInput("url", url, f"this node does not know its address; {NODE_IP} needs it")
    return CheckTarget(target.scheme, here.node_ip, target.port, target.path)


def _is_host(host: str) -> bool:
    bare = host.strip("[]")
    if host == NODE_IP:
        return True
    if host.startswith("[") or _DIGITS.fullmatch(host):
        address = read_address(bare)
        return address is not None and (address.family == 6) == host.startswith("[")
    return _NAME.fullmatch(host) is not None


def _without_user(text: str) -> str:
    """*text* for a message, without a user and password before an @."""
    scheme, slashes, rest = text.partition("://")
    return f"{scheme}{slashes}...@{rest.rpartition('@')[2]}" if "@" in rest.partition("/")[0] else text
