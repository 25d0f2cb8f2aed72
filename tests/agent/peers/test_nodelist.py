"""Nodes, read from a real API server with the account that ``kavip render --static rbac`` makes, and from bad ones."""

import base64
import json
import os
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hack.testbed.controlplane import ControlPlane
from kavip.agent.peers import nodelist
from kavip.agent.peers.client import Server, get
from kavip.agent.peers.kubeconfig import read_server
from kavip.agent.peers.nodelist import MOST_ADDRESSES, list_nodes
from kavip.api.address import parse_address
from kavip.cli.main import cli
from kavip.errors import BadInput, NoAnswer
from kavip.pki.certificates import new_ca
from tests.agent.health.test_probe import answering
from tests.support import manifests
from tests.support.streamserver import Serve, stream_server

VIP = parse_address("192.0.2.200")
GROUP = """
apiVersion: redhatcop.redhat.io/v1alpha1
kind: KeepalivedGroup
metadata: {name: api, namespace: kube-system}
spec: {interface: eth0, virtualIPs: [{address: 192.0.2.200}]}
"""
LABEL = "static-test=yes"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server on a busy machine may take longer than an agent waits for it."""
    monkeypatch.setattr(nodelist, "_SECONDS", 120.0)


def access(folder: Path, plane: ControlPlane, **user: str) -> Path:
    """A kubeconfig in *folder* for *user*."""
    content: dict[str, Any] = {
        "current-context": "static",
        "clusters": [{"name": "c", "cluster": {"server": plane.server, "certificate-authority": "ca.crt"}}],
        "contexts": [{"name": "static", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }
    (folder / "ca.crt").write_bytes(plane.authority.pem)
    (folder / "kubeconfig").write_text(yaml.safe_dump(content))
    return folder / "kubeconfig"


@pytest.fixture(scope="module")
def token(control_plane: ControlPlane) -> Iterator[str]:
    """The token of the account that is rendered, and twelve Nodes."""
    found = CliRunner().invoke(cli, ["render", "--filename=-", "--static=rbac", "--node=n1=192.0.2.11"], input=GROUP)
    assert found.exit_code == 0, found.output
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"static-{n}", "labels": {"static-test": "yes"}}}
        for n in range(12)
    ]
    objects = [*manifests.parsed(found.stdout), *nodes]
    control_plane.kubectl("apply", "--filename=-", input="\n---\n".join(map(json.dumps, objects)))
    addresses = [("InternalIP", "192.0.2.11"), ("InternalIP", "127.0.0.1"), ("InternalIP", "192.0.2.200")]
    addresses += [("InternalIP", "2001:db8::11"), ("InternalIP", "fe80::1"), ("Hostname", "203.0.113.1")]
    status = {"addresses": [{"type": kind, "address": address} for kind, address in addresses]}
    patch = json.dumps({"status": status})
    control_plane.kubectl("patch", "node", "static-3", "--subresource=status", "--type=merge", "-p", patch)
    yield control_plane.kubectl("create", "token", "kavip-static-api", "-n", "kube-system").stdout.strip()
    control_plane.kubectl("delete", "node", "-l", LABEL, "--wait=false")


@pytest.mark.apiserver
async def test_nodes_of_a_real_api_server(control_plane: ControlPlane, token: str, tmp_path: Path) -> None:
    """All pages are read; only addresses count from which a node may send."""
    found = await list_nodes(read_server(access(tmp_path, control_plane, token=token)), LABEL, vips={VIP})
    assert sorted(found) == sorted(f"static-{n}" for n in range(12))
    assert found["static-3"] == (parse_address("192.0.2.11"), parse_address("2001:db8::11"))
    assert await list_nodes(read_server(tmp_path / "kubeconfig"), "static-test=no", vips=()) == {}


@pytest.mark.apiserver
async def test_the_account_may_do_nothing_else(control_plane: ControlPlane, token: str, tmp_path: Path) -> None:
    """The API server refuses to read one Node, or other kinds, and to change a Node."""
    server = read_server(access(tmp_path, control_plane, token=token))
    for path in ("/api/v1/nodes/static-3", "/api/v1/pods", "/api/v1/namespaces/kube-system/secrets"):
        with pytest.raises(NoAnswer, match="status 403"):
            await get(server, path, largest=1 << 20, seconds=120)
    done = control_plane.kubectl("auth", "can-i", "--list", kubeconfig=tmp_path / "kubeconfig")
    listed = [line.split() for line in done.stdout.splitlines() if line.startswith(("nodes", "*"))]
    assert [line[-1] for line in listed] in ([], ["[list]"]), done.stdout


@pytest.mark.apiserver
async def test_credentials_of_all_kinds(control_plane: ControlPlane, token: str, tmp_path: Path) -> None:
    """A token in a file, and a client certificate in the kubeconfig or in files, give the same list."""
    (tmp_path / "token").write_text(f"{token}\n")
    by_file = await list_nodes(read_server(access(tmp_path, control_plane, tokenFile="token")), LABEL, vips=())
    by_data = await list_nodes(read_server(control_plane.kubeconfig), LABEL, vips=())
    (entry,) = yaml.safe_load(control_plane.kubeconfig.read_text())["users"]
    for key in ("client-certificate", "client-key"):
        (tmp_path / key).write_bytes(base64.b64decode(entry["user"][f"{key}-data"]))
    files = {key: key for key in ("client-certificate", "client-key")}
    by_files = await list_nodes(read_server(access(tmp_path, control_plane, **files)), LABEL, vips=())
    assert by_file == by_data == by_files != {}


def page(count: int, *, more: str = "", first: int = 0, **status: Any) -> bytes:
    """An answer with *count* Nodes."""
    items = [{"metadata": {"name": f"n{first + n}"}, "status": status} for n in range(count)]
    body = json.dumps({"kind": "NodeList", "metadata": {"continue": more}, "items": items}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + body


async def listed(script: Serve) -> dict[str, Any]:
    """The Nodes of a server on loopback."""
    async with stream_server(script) as port:
        return dict(await list_nodes(Server("127.0.0.1", port), "", vips=()))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", "status 500"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n", "status 302"),
        (b"\x15\x03\x01\x00\x02\x02", "it does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 4000, "it does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"a" * 70_000, "it does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", "no list of Nodes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "no list of Nodes"),
        (b'HTTP/1.1 200 OK\r\n\r\n{"kind":"PodList","items":[]}', "no list of Nodes"),
        (page(3)[:-5], "no list of Nodes"),
        (page(0, more="x" * 5000), "no list of Nodes"),
        (page(1, more="again"), "more than 100 nodes"),
        (page(101), "more than 100 nodes"),
    ],
)
async def test_a_bad_answer_is_no_list(answer: bytes, message: str) -> None:
    """Whatever else a server answers, the last nodes count, and the reason holds nothing of the answer."""
    with pytest.raises(NoAnswer, match=message):
        await listed(answering(answer))


async def test_a_huge_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is read up to a limit, and no further."""
    monkeypatch.setattr(nodelist, "_LARGEST", 1000)
    with pytest.raises(NoAnswer, match="more than 1,000 bytes"):
        await listed(answering(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 100_000))


async def test_a_slow_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends nothing costs the timeout."""
    monkeypatch.setattr(nodelist, "_SECONDS", 0.2)
    with pytest.raises(NoAnswer, match="no answer within"):
        await listed(answering(b"HTTP/1.1 200 OK\r\n", then=60))


async def test_addresses_of_a_node_are_bounded() -> None:
    """A node with many addresses has the first few; a name that is none is left out."""
    addresses = [{"type": "InternalIP", "address": f"192.0.2.{n}"} for n in range(1, 60)]
    found = await listed(answering(page(1, addresses=addresses)))
    assert len(found["n0"]) == MOST_ADDRESSES
    body = page(1).replace(b'"n0"', b'"n0 evil"')
    assert await listed(answering(body)) == {}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"users": [{"name": "u", "user": {"exec": {"command": "sh"}}}]}, "exec"),
        ({"users": [{"name": "u", "user": {"username": "a", "password": "b"}}]}, "username"),
        ({"users": [{"name": "u", "user": {"token": "a\nb: c"}}]}, "token"),
        ({"users": []}, "users"),
        ({"users": "none"}, "users"),
        ({"current-context": "other"}, "contexts"),
        ({"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1"}}]}, "want https"),
        ({"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:x"}}]}, "want https"),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://h", "insecure-skip-tls-verify": True}}]},
            "insecure",
        ),
        ({"clusters": [{"name": "c", "cluster": {"server": "https://u:s3cret@127.0.0.1/path"}}]}, "want https"),
        ({"clusters": [{"name": "c", "cluster": {"server": "https://h", "proxy-url": "http://p"}}]}, "proxy-url"),
        *(
            (
                {"clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority-data": data}}]},
                "base64",
            )
            for data in ("%", "ü")
        ),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority-data": "eA=="}}]},
            "PEM",
        ),
    ],
)
def test_a_bad_kubeconfig_is_refused(change: dict[str, Any], fault: str, tmp_path: Path) -> None:
    """The message names the key, and no credential."""
    content = {
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "s3cret"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({**content, **change}))
    with pytest.raises(BadInput, match=fault) as caught:
        read_server(path)
    assert "s3cret" not in str(caught.value)


def test_a_file_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    """Neither a broken nor an empty file stops the agent."""
    for text in ("{", "", "- a", "[" * 2_000, "x: 2026-99-99", f"x: {'9' * 5_000}"):
        (tmp_path / "kubeconfig").write_text(text)
        with pytest.raises(BadInput):
            read_server(tmp_path / "kubeconfig")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """As the kubeconfig or as a file that it names, whether a program holds the other end or not."""
    os.mkfifo(tmp_path / "pipe")
    path = config(tmp_path, {}, {"tokenFile": "pipe"})
    with pytest.raises(BadInput, match="contexts"):
        read_server(tmp_path / "pipe")
    assert read_server(path).headers == {}
    with open(os.open(tmp_path / "pipe", os.O_RDWR)):
        assert read_server(path).headers == {}


def test_an_authority_as_kubectl_takes_it(tmp_path: Path) -> None:
    """Comments between certificates, and lines of base64, harm nothing; DER is refused."""
    pem = "# Müller\n".encode() + b"# \xfc\n" + new_ca(datetime.now(UTC)).certificate_pem
    der = ssl.PEM_cert_to_DER_cert(pem[pem.index(b"-----BEGIN") :].decode())
    for content, is_good in ((pem, True), (der, False)):
        (tmp_path / "ca").write_bytes(content)
        for key, value in (("", "ca"), ("-data", base64.encodebytes(content).decode())):
            path = config(tmp_path, {f"certificate-authority{key}": value}, {"token": "t"})
            if is_good:
                assert read_server(path).context is not None
                continue
            with pytest.raises(BadInput, match="PEM"):
                read_server(path)


def test_of_two_tokens_the_file_counts(tmp_path: Path) -> None:
    """kubectl takes the file too, because a token in the kubeconfig is not renewed."""
    (tmp_path / "token").write_text("renewed\n")
    server = read_server(config(tmp_path, {}, {"token": "stale", "tokenFile": "token"}))
    assert server.headers == {"Authorization": "Bearer renewed"}


def config(folder: Path, cluster: dict[str, str], user: dict[str, str]) -> Path:
    """A kubeconfig in *folder*."""
    content = {
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": "https://h", **cluster}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
    }
    (folder / "kubeconfig").write_text(json.dumps(content))
    return folder / "kubeconfig"


def test_a_credential_is_in_no_repr(tmp_path: Path) -> None:
    """A server can be logged."""
    assert "s3cret" not in repr(Server("127.0.0.1", 1, headers={"Authorization": "Bearer s3cret"}))
