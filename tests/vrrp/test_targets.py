"""The requests of health checks, and of the presets."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.errors import BadInput
from kavip.vrrp.targets import KUBE_APISERVER, KUBELET, CheckTarget, NodeEndpoints, read_url, target_of

HERE = NodeEndpoints("192.0.2.11", "10.96.0.1", 443)
ALPHABET = string.printable + "é\u2028\x00\x85"


@pytest.mark.parametrize(
    ("url", "target", "authority"),
    [
        ("http://127.0.0.1:10254/healthz", CheckTarget("http", "127.0.0.1", 10254, "/healthz"), "127.0.0.1:10254"),
        ("https://web.example", CheckTarget("https", "web.example", 443), "web.example"),
        ("https://[::1]:6443/readyz?verbose", CheckTarget("https", "::1", 6443, "/readyz?verbose"), "[::1]:6443"),
        ("http://web:80/?a=b&c=%20d", CheckTarget("http", "web", 80, "/?a=b&c=%20d"), "web"),
        ("http://web?x", CheckTarget("http", "web", 80, "/?x"), "web"),
        ("https://$(NODE_IP):6443/livez", CheckTarget("https", "192.0.2.11", 6443, "/livez"), "192.0.2.11:6443"),
        (KUBELET, CheckTarget("http", "127.0.0.1", 10248, "/healthz"), "127.0.0.1:10248"),
        (KUBE_APISERVER, CheckTarget("https", "10.96.0.1", 443, "/readyz", frozenset({401, 403})), "10.96.0.1"),
    ],
)
def test_targets(url: str, target: CheckTarget, authority: str) -> None:
    """Scheme, host, port, path and the Host header have the defaults of HTTP."""
    found = target_of(url, HERE)
    assert found == target
    assert found.authority == authority


def test_the_api_server_without_services() -> None:
    """A static pod cannot use Services: there the API server is on the node itself, in either family."""
    found = target_of(KUBE_APISERVER, NodeEndpoints("192.0.2.11"))
    assert (found.authority, found.path) == ("192.0.2.11:6443", "/readyz")
    assert target_of(KUBE_APISERVER, NodeEndpoints("2001:db8::1")).authority == "[2001:db8::1]:6443"
    for url in (KUBE_APISERVER, "http://$(NODE_IP)/"):
        with pytest.raises(BadInput, match="address"):
            target_of(url, NodeEndpoints())


@pytest.mark.parametrize(
    "url",
    [
        "", "ftp://x", "http://", "http:///x", "//x", "http://x:0", "http://x:65536", "http://x:080", "http://x:",
        "http://x/ y", "http://x/\r\nCookie: a", "http://x/#frag", "http://x\\y", "HTTP://x", "http://x:8080x",
        "http://::1/", "http://[::1", "http://[192.0.2.1]/", "http://[fe80::1%25eth0]/", "http://1.2.3",
        "http://0x7f.1/x ", "http://192.0.2.256/", "http://-x/",
        "http://x..y/", "http://$(HOST_IP)/", "http://a$(NODE_IP)/", "http://é/",
        "http://x/\x00", "http://x/\u2028", "http://" + "a" * 64 + "/", "unix:///run/x.sock", "file:///etc/passwd",
        "http://x/{}", 'http://x/"',
    ],
)  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    """Anything beside host, port, path and query, or in a form that clients read differently, is refused."""
    with pytest.raises(BadInput, match="want kubelet or kube-apiserver, or"):
        read_url(url, "spec.checks[0].url")


@pytest.mark.parametrize("url", ["http://user:hunter2@x/", "https://hunter2@x", "http://a@b:hunter2@x/y"])
def test_a_password_is_refused_and_not_repeated(url: str) -> None:
    """The message shows its place, but no part of it."""
    with pytest.raises(BadInput) as caught:
        read_url(url, "spec.checks[0].url")
    assert "hunter2" not in str(caught.value)
    assert "@x" in str(caught.value)


@given(st.text(st.sampled_from(ALPHABET), max_size=40).map("http://".__add__))
def test_an_accepted_url_is_one_line_of_ascii(url: str) -> None:
    """Neither the request line nor the Host header can contain a second one."""
    try:
        target = read_url(url, "url")
    except BadInput:
        return
    for text in (target.path, target.authority):
        assert text.isascii() and text.isprintable() and " " not in text
