"""Sockets that listen on every address of a host, or of the machine, in both address families."""

import asyncio
import errno
import socket
from typing import Final

_NO_FAMILY: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})  # errors of a kernel without IPv6


async def bound(host: str, port: int, *, backlog: int = 1024) -> list[socket.socket]:
    """
    Sockets on every address of *host*, or of the machine if it is ""; with *port* 0 the kernel chooses the port.

    Raises OSError if one of them cannot be opened.
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
        port = listening.getsockname()[1]  # the same for all families
    if not sockets:
        raise lacking[0]
    return sockets
