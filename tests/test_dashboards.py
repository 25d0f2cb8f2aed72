"""The dashboards: their structure, and that a real Prometheus answers each of their queries."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from hack.alerts import ALERTS
from hack.dashboards import DASHBOARDS, grafana, shared
from hack.dashboards.model import Dashboard, Panel
from hack.testbed import need, process
from hack.testbed.ports import free_ports
from kavip.names import Exporter
from tests.support import scrapes
from tests.test_alerts import promtool

OF_TARGET = {"job", "instance"}
"""Labels that Prometheus adds."""
BY_JOB = {"lb/edge": Exporter.GEN2BRAIN, "lb/old": Exporter.MEHDY}
"""Groups, with the names that their agents use."""
PATIENCE = 120.0
METRIC = r"\bk(?:avip|eepalived)_\w+"
SELECTED = re.compile(METRIC + r"(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(?:=~|=)"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|without) \(([^)]*)\)")

Read = Callable[[str], Any]
Samples = Mapping[str, Mapping[str, set[str]]]
"""The values of each label of each metric."""

dashboards = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)


def panels(dashboard: Dashboard) -> list[Panel]:
    """The panels of all rows."""
    return [panel for row in dashboard.rows for panel in row.panels]


def expressions(dashboard: Dashboard) -> list[str]:
    """What the panels and the variables of the dashboard ask."""
    return [
        *(query.expr for panel in panels(dashboard) for query in panel.queries),
        *(f"group by ({variable.label}) ({variable.series})" for variable in dashboard.variables),
    ]


def rendered(dashboard: Dashboard) -> Any:
    """The dashboard as Grafana reads it."""
    return json.loads(grafana.files()[grafana.FOLDER / f"{dashboard.name}.json"])


def substituted(expression: str, **values: str) -> str:
    """The *expression* as Grafana sends it: with the *values* of its variables."""
    values = {"__rate_interval": "1m", "pool": scrapes.POOL, **values}
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expression)


@pytest.fixture(scope="module")
def scraped() -> Iterator[dict[str, str]]:
    """What Prometheus scrapes, by job."""
    with scrapes.of_leader(*BY_JOB) as text:
        yield {"kavip": text, **{job: scrapes.of_agent(style) for job, style in BY_JOB.items()}}


@pytest.fixture(scope="module")
def samples(scraped: Mapping[str, str]) -> Samples:
    """The metrics in *scraped*."""
    found: dict[str, dict[str, set[str]]] = {}
    for text in scraped.values():
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                of_metric = found.setdefault(sample.name, {})
                for label, value in sample.labels.items():
                    of_metric.setdefault(label, set()).add(value)
    return found


def test_each_dashboard_is_one_file() -> None:
    """The folder of the chart has these files and no others; uid and title are unique."""
    assert set(grafana.FOLDER.iterdir()) == set(grafana.files())
    for field in ("uid", "title"):
        assert len({rendered(each)[field] for each in DASHBOARDS}) == len(DASHBOARDS)


@dashboards
def test_the_structure_is_that_of_grafana(dashboard: Dashboard) -> None:
    """Panels have unique ids and titles, lie within the grid and do not overlap; each has a description and queries."""
    found = rendered(dashboard)
    assert re.fullmatch(r"[a-z-]{1,40}", found["uid"]) and isinstance(found["schemaVersion"], int)
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    cells = [panel["gridPos"] for panel in found["panels"]]
    assert all(cell["x"] >= 0 and cell["x"] + cell["w"] <= 24 for cell in cells)
    for one, two in combinations(cells, 2):
        apart = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"]
    shown = [panel for panel in found["panels"] if panel["type"] != "row"]
    assert len({panel["title"] for panel in shown}) == len(shown)
    for panel in shown:
        assert panel["description"].endswith("."), panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == list("ABCDEFGH"[: len(letters)]) and letters
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


@dashboards
def test_each_variable_is_declared_and_used(dashboard: Dashboard) -> None:
    """The queries use the variables of the dashboard, and no others."""
    used = {name for each in expressions(dashboard) for name in re.findall(r"\$(\w+)", each)}
    assert used - {"__rate_interval"} == {variable.name for variable in dashboard.variables}


def test_each_alert_has_a_panel() -> None:
    """Each alert is linked by a panel that reads a metric of it; no panel links another alert."""
    by_name = {alert.name: alert for alert in ALERTS}
    linked = set()
    for panel in (panel for dashboard in DASHBOARDS for panel in panels(dashboard)):
        read = {name for query in panel.queries for name in re.findall(METRIC, query.expr)}
        for name in panel.alerts:
            assert read & set(re.findall(METRIC, by_name[name].expr)), f"{panel.title}: {name}"
            linked.add(name)
    assert linked == by_name.keys()


@dashboards
def test_each_metric_and_label_exists(dashboard: Dashboard, samples: Samples) -> None:
    """Metrics, labels and values of labels are those that kavip and its agents export; legends show kept labels."""
    for expression in expressions(dashboard):
        known = set(OF_TARGET)
        for found in SELECTED.finditer(expression):
            labels = samples[found[0].partition("{")[0]]
            known |= labels.keys()
            for label, value in MATCHER.findall(found[1] or ""):
                assert label in {*labels, *OF_TARGET}, expression
                assert "$" in value or set(value.split("|")) <= labels[label], expression
        assert {label for each in GROUPING.findall(expression) for label in each.split(", ")} <= known, expression
    for query in (query for panel in panels(dashboard) for query in panel.queries):
        kept = {label for each in GROUPING.findall(query.expr) for label in each.split(", ")}
        assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= kept, query.expr


@pytest.mark.netns  # promtool comes with the packages that these tests need
def test_promtool_accepts_each_query(tmp_path: Path) -> None:
    """`promtool check rules` finds no fault in the queries as rules."""
    need.packages("promtool", ("prometheus",))
    found = sorted(
        {substituted(each, group="lb/edge", node="n1:1") for all_ in DASHBOARDS for each in expressions(all_)}
    )
    rules = [{"record": f"query:{number}", "expr": expression} for number, expression in enumerate(found)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    promtool("check", "rules", str(file))


@pytest.mark.netns
def test_moves_are_counted_though_a_label_changes(tmp_path: Path) -> None:
    """A node that becomes MASTER three times within the hour has three, with the names of either exporter."""
    need.packages("promtool", ("prometheus",))
    (expression,) = (query.expr for query in shared.moves("").queries)
    label = 'instance="n1",name="shop/web"'
    changing = {
        f'keepalived_vrrp_become_master{{{label},state="BACKUP"}}': "2x19 _x9 stale 3x8 _x9 stale 4x8 _x9 stale 5x20",
        f'keepalived_vrrp_become_master{{{label},state="MASTER"}}': "_x20 3x8 stale _x9 4x8 stale _x9 5x8 stale _x21",
    }
    for series in (changing, {'keepalived_become_master_total{instance="n1"}': "2x19 3x19 4x19 5x30"}):
        case = {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f"round({expression})",
                    "eval_time": "70m",
                    "exp_samples": [{"labels": '{instance="n1"}', "value": 3}],
                }
            ],
        }
        file = tmp_path / "test.yaml"
        file.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [case]}))
        promtool("test", "rules", str(file))


@pytest.fixture(scope="module")
def prometheus(scraped: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Read]:
    """A Prometheus that scrapes *scraped*; it returns the series of an expression."""
    need.packages("Prometheus", ("prometheus",))
    home = tmp_path_factory.mktemp("prometheus")
    served = home / "served"
    served.mkdir()
    for number, text in enumerate(scraped.values()):
        (served / f"{number}.txt").write_text(text)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(served)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    target = f"127.0.0.1:{server.server_port}"
    jobs = [
        {
            "job_name": job,
            "metrics_path": f"/{number}.txt",
            "static_configs": [{"targets": [target], "labels": {"instance": instance_of(job)}}],
        }
        for number, job in enumerate(scraped)
    ]
    config = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
        "scrape_configs": jobs,
    }
    (home / "prometheus.yml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    started = process.spawn(
        [
            *("prometheus", f"--config.file={home / 'prometheus.yml'}", f"--storage.tsdb.path={home / 'data'}"),
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        log=home / "log",
    )

    def ask(expression: str) -> Any:
        with urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={quote(expression)}", timeout=PATIENCE) as answer:
            return json.load(answer)["data"]["result"]

    def ready() -> bool:
        try:
            return len(ask("sum_over_time(up[1m]) > 3")) == len(scraped)  # on a busy machine some scrapes fail
        except OSError:
            return False

    try:
        process.wait_for("scrapes", ready, timeout=PATIENCE)
        yield ask
    finally:
        process.stop([started])
        server.shutdown()
        server.server_close()
        thread.join()


def instance_of(job: str) -> str:
    """The label of its target."""
    return f"{job.replace('/', '-')}:9650"


@pytest.mark.netns
@pytest.mark.parametrize("group", BY_JOB)
@dashboards
def test_prometheus_answers_each_query(dashboard: Dashboard, group: str, prometheus: Read) -> None:
    """Each query has a series, whichever names the agents of the group use for keepalived's counters."""
    for expression in expressions(dashboard):
        query = substituted(expression, group=group, node=instance_of(group))
        process.wait_for(query, partial(prometheus, query), timeout=PATIENCE)  # on a busy machine a scrape may fail
