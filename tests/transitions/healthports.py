"""
A fake of kube-proxy's health ports: HTTP servers on the nodes of a segment.

``python -m tests.transitions.healthports FOLDER`` serves one port for each file in FOLDER: the name of the file is the
port, its text the HTTP status.
"""

import sys
from collections.abc import Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from hack.testbed import process
from hack.testbed.process import Process
from hack.testbed.segment import Host
from tests.vrrp.livedaemons import BEFORE_OTHERS

PORT = 30100
"""The health port of the Service."""


class HealthPorts:
    """The health port of one Service on each of *hosts*."""

    def __init__(self, hosts: Sequence[Host], folder: Path) -> None:
        """No node has a ready endpoint yet; the files are kept in *folder*."""
        self._hosts, self._folder = hosts, folder
        self._processes: list[Process] = []
        for host in hosts:
            (folder / host.name).mkdir(parents=True)
        self.set_ready()

    def start(self) -> None:
        """Start the servers."""
        for host in self._hosts:
            folder = str(self._folder / host.name)
            command = (*BEFORE_OTHERS, sys.executable, "-m", "tests.transitions.healthports", folder)
            self._processes.append(host.spawn(*command, log=self._folder / f"{host.name}.log"))

    def set_ready(self, *nodes: str) -> None:
        """Report a ready endpoint on *nodes*, and on no other node."""
        for host in self._hosts:
            fresh = self._folder / f"{host.name}.new"
            fresh.write_text("200" if host.name in nodes else "503")
            fresh.replace(self._folder / host.name / str(PORT))

    def stop(self) -> None:
        """Stop the servers."""
        process.kill(self._processes)


class Server(ThreadingHTTPServer):
    """One health port."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: clients may close connections at any time."""


class Handler(BaseHTTPRequestHandler):
    """Answers over connections that stay open, as kube-proxy does."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one write, as in Go

    def __init__(self, file: Path, *args: object) -> None:
        """Answer with the status in *file*."""
        self._file = file
        super().__init__(*args)  # type: ignore[arg-type]  # the arguments of the server

    def do_GET(self) -> None:
        """Report the number of local endpoints."""
        status = int(self._file.read_text())
        body = b'{"localEndpoints": %d}' % (status == 200)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Log nothing."""


def main() -> None:
    """Serve until the process is killed."""
    for file in Path(sys.argv[1]).iterdir():
        server = Server(("", int(file.name)), partial(Handler, file))
        Thread(target=server.serve_forever).start()


if __name__ == "__main__":
    main()
