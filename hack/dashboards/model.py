"""What a dashboard consists of, and the queries that several of them have."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The types of panels that kavip uses, as Grafana names them."""

    STAT = "stat"
    TABLE = "table"
    TIMESERIES = "timeseries"


class Unit(StrEnum):
    """Units, as Grafana names them."""

    COUNT = "short"
    DURATION = "s"
    PER_SECOND = "cps"
    SHARE = "percentunit"


class Health(StrEnum):
    """Which values of a stat are red."""

    NEUTRAL = "none"
    NONE_IS_BAD = "below 1"
    SOME_IS_BAD = "1 and above"


@dataclass(frozen=True, slots=True)
class Query:
    """An expression of PromQL, and the *legend* of its series: a template of Grafana."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel; it links the runbooks of *alerts*, which read the same metrics."""

    title: str
    description: str
    queries: tuple[Query, ...]
    kind: Kind = Kind.TIMESERIES
    unit: Unit = Unit.COUNT
    health: Health = Health.NEUTRAL
    alerts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """Panels about one subject."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """
    A choice at the top of the dashboard: the values that *label* has in *series*.

    *everything* is the regular expression of all ("": all values of now).
    """

    name: str
    series: str
    label: str
    everything: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard. *name* is the name of its file; it is part of the uid, so it never changes."""

    name: str
    title: str
    description: str
    variables: tuple[Variable, ...] = ()
    rows: tuple[Row, ...]


def rate(metric: str, *by: str) -> Query:
    """The events of the counter *metric* per second, by labels."""
    return Query(f"sum by ({', '.join(by)}) (rate({metric}[$__rate_interval]))", legend(*by))


def legend(*by: str) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in by)


def quantiles(metric: str, *by: str) -> tuple[Query, ...]:
    """The median and the 99th percentile of the histogram *metric*, by labels."""
    labels = ", ".join((*by, "le"))
    rate = f"sum by ({labels}) (rate({metric}_bucket[$__rate_interval]))"
    return tuple(Query(f"histogram_quantile({each}, {rate})", f"{each} {legend(*by)}".strip()) for each in (0.5, 0.99))
