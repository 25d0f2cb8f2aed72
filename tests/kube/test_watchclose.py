"""How a TLS watch that is not read to its end is closed, as its server sees it."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from hack.testbed.certs import Authority
from kavip.kube.auth import Credentials
from kavip.kube.transport import Transport

HOST = "127.0.0.1"
ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"


def stream(listener: socket.socket, tls: ssl.SSLContext) -> bytes:
    """Answer one request with one line; return b"" after a close_notify, raise after an abort."""
    plain, _ = listener.accept()
    plain.settimeout(60)
    with tls.wrap_socket(plain, server_side=True, suppress_ragged_eofs=False) as connection:
        connection.recv(65536)
        connection.sendall(ANSWER)
        return connection.recv(65536)


async def test_an_abandoned_watch_is_aborted(tmp_path: Path) -> None:
    """A regular close would keep the socket open until the server answers it."""
    authority = Authority(tmp_path)
    crt, key = authority.issue("api", hosts=[HOST]).write(tmp_path, "api")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(crt, key)
    with socket.create_server((HOST, 0)) as listener:
        config = tmp_path / "kubeconfig"
        config.write_text(authority.kubeconfig(f"https://{HOST}:{listener.getsockname()[1]}", "users"))
        served = asyncio.create_task(asyncio.to_thread(stream, listener, tls))
        async with Transport(Credentials(str(config))) as transport:
            async with transport.stream_lines("/watch", {}, silence=30) as lines:
                assert await anext(lines) == b"{}"
            with pytest.raises((ssl.SSLEOFError, ConnectionResetError)):
                await served
