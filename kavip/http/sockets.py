"""Sockets that listen: on every address of a host, or of the machine, whichever families it has."""

import asyncio
import errno
import socket
from typing import Final

_NO_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})  # what a kernel without IPv6 says


async def bound(host: str, port: int, *, backlog: int = 1024) -> list[socket.socket]:
    """
    Sockets on every address of *host*, or without one of the machine; with *port* 0 on one that the kernel chooses.

    Raises OSError where one of them cannot be had.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    lacking: list[OSError] = []
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            listening = socket.create_server((address[0], port, *address[2:]), family=family, backlog=backlog)
        except OSError as error:
            if not host and error.errno in _NO_FAMILY:
                lacking.append(error)
                continue
            for each in sockets:
                each.close()
            raise
        listening.setblocking(False)
        sockets.append(listening)
        port = listening.getsockname()[1]  # of every family the same
    if not sockets:
        raise lacking[0]
    return sockets
