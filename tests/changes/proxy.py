"""Health ports as kube-proxy serves them, one for each file in a folder: its name is the port, its text the status."""

import sys
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread


class Server(ThreadingHTTPServer):
    """One health port."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may go."""


class Handler(BaseHTTPRequestHandler):
    """Answers over connections that stay open, as kube-proxy does."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together, as Go sends them

    def __init__(self, file: Path, *args: object) -> None:
        """Answer what *file* says."""
        self._file = file
        super().__init__(*args)  # type: ignore[arg-type]  # what the server gives

    def do_GET(self) -> None:
        """Say how many endpoints there are."""
        status = int(self._file.read_text())
        body = b'{"localEndpoints": %d}' % (status == 200)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Keep silent."""


def main() -> None:
    """Serve for ever."""
    for file in Path(sys.argv[1]).iterdir():
        server = Server(("", int(file.name)), partial(Handler, file))
        Thread(target=server.serve_forever).start()


if __name__ == "__main__":
    main()
