"""``kavip ui`` as a user runs it: a fail-over on the page, the loss of the API server, few rights, and files."""

import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Self

import pytest
import yaml

from tests.app.conftest import PATIENCE, ROOT, Installation, a_group, a_pool, a_service, wait_for
from tests.app.fakeagents import FakeAgents
from tests.app.test_explain import let_list
from tests.app.test_status import Relay

pytestmark = pytest.mark.apiserver

LINK: Final = re.compile(r"Open http://127\.0\.0\.1:(\d+)/#([\w-]+)\n")


class Reader:
    """What the page of a ``kavip ui`` knows: *rows* by section and id, *state* as the server said it last."""

    def __init__(self, link: str) -> None:
        found = LINK.fullmatch(link)
        assert found is not None, link
        self._port = int(found[1])
        self._host = f"127.0.0.1:{found[1]}"
        self._answers: list[http.client.HTTPResponse] = []
        answer = self._request("POST", "/session", body=found[2], headers={"Origin": f"http://{self._host}"})
        self._cookie = answer.headers["Set-Cookie"].partition(";")[0]
        self._key = json.loads(answer.read())["key"]
        self._stream = self.get("/events")
        self.rows: dict[str, dict[str, Any]] = {}
        self.state: dict[str, Any] = {}

    def _request(self, method: str, path: str, *, body: str = "", headers: dict[str, str]) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        connection.request(method, path, body=body or None, headers={"Connection": "close", **headers})
        answer = connection.getresponse()  # it has the socket now
        connection.close()
        self._answers.append(answer)
        assert answer.status == 200, answer.read()
        return answer

    def get(self, path: str) -> http.client.HTTPResponse:
        """The answer to a GET with the secrets of the session."""
        separator = "&" if "?" in path else "?"
        return self._request("GET", f"{path}{separator}key={self._key}", headers={"Cookie": self._cookie})

    def close(self) -> None:
        """Close all connections."""
        for each in self._answers:
            each.close()

    def read(self) -> Self:
        """Receive one event."""
        event = self._stream.readline().decode().removeprefix("event: ").strip()
        content = json.loads(self._stream.readline().decode().removeprefix("data: "))
        self._stream.readline()
        if event == "state":
            self.state = content
            return self
        for section, change in content.items():
            known = self.rows.setdefault(section, {})
            for key in change["drop"]:
                del known[key]
            known |= {row["id"]: row for row in change["set"]}
        return self

    def column(self, section: str, name: str) -> list[Any]:
        """The values of a column, in the order of the page."""
        return [row[name] for _, row in sorted(self.rows.get(section, {}).items())]


@contextmanager
def page_of(tmp_path: Path, *flags: str) -> Iterator[Reader]:
    """A reader of a ``kavip ui`` that runs meanwhile."""
    log = tmp_path / "ui.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            # a shell that runs the tests in the background ignores SIGINT, and its children inherit that
            ["env", "--default-signal=INT", sys.executable, "-m", "kavip", "ui", *flags],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=stream,
        )
    try:
        assert process.stdout is not None
        link = process.stdout.readline().decode()
        assert link, log.read_text()
        with closing(Reader(link)) as reader:
            yield reader
        assert process.poll() is None, log.read_text()
    finally:
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
            process.communicate()
    assert "Traceback" not in log.read_text()


def test_a_fail_over_is_on_the_page(installation: Installation, tmp_path: Path) -> None:
    """The VIP is on the other node, the timeline says so, and an Event of the time before is in it."""
    with FakeAgents(installation) as agents:
        edge = a_group("edge", default=True, metricsPort=agents.port, advertIntervalMilliseconds=3000)
        installation.apply(a_pool("edge", "192.0.2.128/25"), edge)
        installation.start(webhook=False)
        installation.apply(a_service("s1"))
        agents.masters = {"n1"}
        agents.run(["s1"])
        wait_for("n1 is master", lambda: installation.condition("s1", "kavip.io/Advertised").get("reason") == "Master")
        events = ("get", "events.v1.events.k8s.io", "-n", "shop", "-o", "json")
        wait_for("an Event", lambda: json.loads(installation.plane.kubectl(*events).stdout)["items"])
        with page_of(tmp_path, f"--kubeconfig={installation.plane.kubeconfig}") as page:
            wait_for(
                "n1 holds the VIP",
                lambda: page.read().column("vips", "node") == ["n1"],
                details=lambda: page.rows,
            )
            assert page.rows["timeline"], "Events of kavip begin the timeline"
            agents.masters = {"n2"}
            wait_for(
                "n2 holds the VIP",
                lambda: page.read().column("vips", "node") == ["n2"],
                details=lambda: page.rows,
            )
            wait_for(
                "the move is in the timeline",
                lambda: any("n1 → n2" in text for text in page.column("timeline", "text")),
            )
            explained = json.loads(page.get("/service?name=shop/s1").read())
            assert [each["reason"] for each in explained["steps"]][:2] == ["Accepted", "Assigned"]


def test_the_page_says_that_the_api_server_is_away(installation: Installation, tmp_path: Path) -> None:
    """The last picture stays, and changes after the outage appear."""
    installation.apply(a_pool("edge", "192.0.2.128/25"))
    relay = Relay(installation.plane)
    relay.open()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(relay.kubeconfig))
    with page_of(tmp_path, f"--kubeconfig={kubeconfig}") as page:
        wait_for("the pool", lambda: page.read().column("pools", "pool") == ["edge"])
        relay.close()
        wait_for("the error", lambda: page.read().state.get("error"))
        assert page.column("pools", "pool") == ["edge"]
        installation.apply(a_pool("later", "198.51.100.0/28"))
        relay.open()
        wait_for("the end of it", lambda: not page.read().state["error"])
        wait_for("the other pool", lambda: page.read().column("pools", "pool") == ["edge", "later"])
    relay.close()


def test_what_may_not_be_read_is_said(installation: Installation, tmp_path: Path) -> None:
    """With the right to list pools alone, the page shows pools, and what it leaves out."""
    installation.apply(a_pool("edge", "192.0.2.128/25"))
    let_list(installation, "emil", "kavip.io", "vippools")
    with page_of(tmp_path, f"--kubeconfig={installation.plane.user('emil')}", "-n", "shop") as page:
        wait_for("the pool", lambda: page.read().column("pools", "pool") == ["edge"])
        notes = "\n".join(page.column("notes", "text"))
    for plural in ("services", "nodes", "keepalivedgroups", "namespaces", "events"):
        assert re.search(rf"you may not list {plural}\b", notes), notes


def test_files_have_a_page(installation: Installation, tmp_path: Path) -> None:
    """It needs no cluster, and says that it does not change."""
    installation.apply(a_pool("edge", "192.0.2.128/25"), a_group("edge"))
    dump = tmp_path / "cluster.yaml"
    dump.write_text(installation.plane.kubectl("get", "vippools,keepalivedgroups", "-A", "-o", "yaml").stdout)
    with page_of(tmp_path, "-f", str(dump)) as page:
        wait_for("the picture", lambda: page.read().state)
        assert (page.state["isLive"], page.state["source"]) == (False, str(dump))
        assert page.column("pools", "pool") == ["edge"]
