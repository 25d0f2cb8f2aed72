"""The page of ``kavip ui`` in the demo: what it shows, and its address for a browser."""

import http.client
import json
import sys
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from hack.demo.session import Session
from hack.testbed import livepage

_PATIENCE = 60.0  # seconds


class Reader:
    """What the page does in a browser that opens *link*, which works once."""

    def __init__(self, link: str) -> None:
        parts = urlsplit(link)
        self._server = parts.netloc
        connection = http.client.HTTPConnection(self._server, timeout=_PATIENCE)
        origin = {"Origin": f"{parts.scheme}://{parts.netloc}"}
        with closing(connection):
            connection.request("POST", "/session", body=parts.fragment, headers=origin)
            answer = connection.getresponse()
            self._cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
            self._key: str = json.loads(answer.read())["key"]

    def nodes_of(self, address: str) -> list[str]:
        """The nodes that hold *address* in the picture of now; empty if the server is too busy to send one."""
        connection = http.client.HTTPConnection(self._server, timeout=_PATIENCE)
        with closing(connection):
            connection.request("GET", f"/events?key={self._key}", headers={"Cookie": self._cookie})
            stream = connection.getresponse()
            while (line := stream.readline()) and line.rstrip() != b"event: picture":
                pass
            found: dict[str, Any] = json.loads(stream.readline().removeprefix(b"data: ") or b"{}")
        return [row["node"] for row in found.get("vips", {}).get("set", ()) if row["address"] == address]


def look_at_page(session: Session, service: str) -> None:
    """Open the page as a browser does: it shows the VIP of *service* on the node that holds it."""
    session.title("The live picture in a browser")
    address = session.address(service)
    with livepage.served(session.cluster) as link:
        print(f"$ kubectl kavip ui\n  Open {link.partition('#')[0]}#...", flush=True)
        reader = Reader(link)
        session.wait("the page shows the VIP on the node that holds it", lambda: _is_shown(session, reader, address))


def _is_shown(session: Session, reader: Reader, address: str) -> bool:
    """Whether *reader* sees *address* on its holder: on a busy machine it may move in between."""
    shown = reader.nodes_of(address)
    return bool(shown) and shown == [node.name for node in session.holders(address)]


def offer(session: Session) -> None:
    """Serve the page on a terminal until the reader has seen it; elsewhere say how to get it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("   the page of a cluster that stays: make cluster, and then hack/venv python -m hack.testbed ui")
        return
    with livepage.served(session.cluster) as link:
        input(f"   the page of this cluster, until you press Enter: {link}\n")
