"""
A web server for the testbed that answers with the status in a file: ``python -P webserver.py FILE PORT``.

``-P``, because the folder of this file has a package called http.
"""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    """Answers every GET with the status in the file."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(int(Path(sys.argv[1]).read_text()))
        self.end_headers()


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
