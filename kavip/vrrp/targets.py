"""
What a health check asks: the two presets, and URLs, of which only the plain ones are taken.

A URL is the text of a group's owner, and every node follows it. So it is read by one small grammar and put together
anew; credentials, fragments, blanks, and whatever else a client might send somewhere are no part of it.
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
"""Stands for the node's own address, as a host."""

KUBELET_URL: Final = "http://127.0.0.1:10248/healthz"
API_PATH: Final = "/readyz"
API_PORT: Final = 6443

_SHY: Final = frozenset({401, 403})
"""Where ``--anonymous-auth=false`` is set the API server tells strangers nothing; that it does is an answer."""
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
class Target:
    """Whom to ask for what; *host* without brackets, *path* with its query; *refusals* are statuses that do as well."""

    scheme: str
    host: str
    port: int
    path: str = "/"
    refusals: frozenset[int] = frozenset()

    @property
    def authority(self) -> str:
        """Host and port as the Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a node knows of itself: its address, and where the Service ``kubernetes`` is, "" where it was not told."""

    node_ip: str = ""
    api_host: str = ""
    api_port: int = _PORTS["https"]


def read_url(text: str, field: str) -> Target:
    """
    Read *text*, a URL and no preset.

    Raises :class:`BadInput` naming *field*.
    """
    match = _URL.fullmatch(text)
    if match is None:
        raise BadInput(field, _without_user(text), _SHAPE)
    host, scheme = match["host"], match["scheme"]
    port = int(match["port"] or _PORTS[scheme])
    if port > _MOST_PORT or not _is_host(host):
        raise BadInput(field, text, _SHAPE)
    return Target(scheme, host.strip("[]"), port, f"{match['path'] or '/'}{match['query'] or ''}")


def target_of(url: str, here: Surroundings) -> Target:
    """
    Whom the check of *url* asks on a node.

    ``kube-apiserver`` is the node's way to the API, as its pods take it; where there are no Services, the API server on
    the node itself. Raises :class:`BadInput` where there is nobody to ask.
    """
    if url == KUBELET:
        return read_url(KUBELET_URL, "url")
    if url == KUBE_APISERVER:
        host, port = (here.api_host, here.api_port) if here.api_host else (here.node_ip, API_PORT)
        if read_address(host) is None:
            raise BadInput("url", url, "this node knows no address of the API server; want a URL")
        return Target("https", host, port, API_PATH, _SHY)
    target = read_url(url, "url")
    if target.host != NODE_IP:
        return target
    if read_address(here.node_ip) is None:
        raise BadInput("url", url, f"this node does not know its address; {NODE_IP} needs it")
    return Target(target.scheme, here.node_ip, target.port, target.path)


def _is_host(host: str) -> bool:
    bare = host.strip("[]")
    if host == NODE_IP:
        return True
    if host.startswith("[") or _DIGITS.fullmatch(host):
        address = read_address(bare)
        return address is not None and (address.family == 6) == host.startswith("[")
    return _NAME.fullmatch(host) is not None


def _without_user(text: str) -> str:
    """*text* as a message may show it: what stands before an @ may be a password."""
    scheme, slashes, rest = text.partition("://")
    return f"{scheme}{slashes}...@{rest.rpartition('@')[2]}" if "@" in rest.partition("/")[0] else text
