"""Fake agents: HTTP servers on loopback whose state a test sets; a real controller probes them."""

import json
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from kavip.api.agent import Capability
from tests.app.conftest import Installation, free_port, object_of, wait_for


class FakeAgents:
    """
    The agents of the group lb/edge on nodes n1, n2, ...

    *masters*: the nodes that hold all VIPs. *conflicts*: what every node reports about other machines on the LAN.
    *old*: the nodes whose agents are of an earlier version, which reports no capabilities.
    """

    def __init__(self, installation: Installation, *, nodes: int = 2) -> None:
        """Entering the context starts the servers."""
        self._installation = installation
        self.port = free_port()
        self.masters: set[str] = set()
        self.silent: set[str] = set()
        self.old: set[str] = set()
        self.conflicts: list[dict[str, str]] = []
        self._runs: tuple[str, list[dict[str, Any]]] = (
            "",
            [],
        )  # the hash of the running configuration, and its instances
        self._servers = {
            f"n{n}": ThreadingHTTPServer((f"127.0.0.{n + 1}", self.port), self._handler(f"n{n}"))
            for n in range(1, nodes + 1)
        }

    def __enter__(self) -> Self:
        """Start the servers and create the nodes."""
        self._installation.apply(*(object_of("Node", name) for name in self._servers))
        for name, server in self._servers.items():
            addresses = [{"type": "InternalIP", "address": server.server_address[0]}]
            status = json.dumps({"status": {"addresses": addresses}})
            self._installation.plane.kubectl("patch", "node", name, "--subresource=status", "-p", status)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the servers."""
        for server in self._servers.values():
            server.shutdown()
            server.server_close()

    def run(self, services: Iterable[str]) -> None:
        """Run the configuration in the ConfigMap as soon as it has the instances of *services*."""
        wanted = {f"shop/{name}" for name in services}

        def taken() -> list[dict[str, Any]]:
            found = self._installation.get("keepalivedgroup", "edge", "-n", "lb") or {}
            instances = found.get("status", {}).get("instances") or []
            is_whole = {each["name"] for each in instances if each.get("virtualIPs")} == wanted
            return instances if is_whole else []

        instances = wait_for(f"instances of {sorted(wanted)}", taken)
        config = self._installation.get("configmap", "edge", "-n", "lb")
        for each in instances:
            each["virtualIPs"] = self._installation.addresses(each["name"].partition("/")[2])
        self._runs = json.loads(config["data"]["agent.json"])["configHash"], instances

    def load(self) -> None:
        """Run the configuration in the ConfigMap, and report no instances."""
        config = self._installation.get("configmap", "edge", "-n", "lb")
        self._runs = json.loads(config["data"]["agent.json"])["configHash"], []

    def _handler(self, node: str) -> type[BaseHTTPRequestHandler]:
        agents = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Answer ``/state``."""
                body = agents.state(node)
                self.send_response(503 if node in agents.silent else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler

    def state(self, node: str) -> bytes:
        """The answer of the agent of *node*."""
        config_hash, run = self._runs
        state = "MASTER" if node in self.masters else "BACKUP"
        kept = ("name", "routerID", "family", "virtualIPs")
        instances = [{**{key: each[key] for key in kept}, "state": state, "lastTransition": state} for each in run]
        document = {"node": node, "group": "lb/edge", "configHash": config_hash, "instances": instances}
        lan = {"hardwareAddresses": [f"02:00:c0:00:02:{int(node[1:]):02x}"], "conflicts": self.conflicts}
        can = {} if node in self.old else {"capabilities": [Capability.COMPACT_TEXT, Capability.PACKED_TEXT]}
        return json.dumps({**document, **can, **lan, "keepalived": {"version": "2.2.7", "running": True}}).encode()
