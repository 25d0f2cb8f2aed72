"""The API server's own counters of webhook calls: they also count failures that no writer sees."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from hack.testbed.cluster import Cluster

_OURS: Final = ".kavip.io"
# the parser appends _total to the name of every counter
_REQUESTS: Final = "apiserver_admission_webhook_request_total"
_REJECTIONS: Final = "apiserver_admission_webhook_rejection_count_total"
_FAIL_OPEN: Final = "apiserver_admission_webhook_fail_open_count_total"
_SECONDS: Final = "apiserver_admission_webhook_admission_duration_seconds_bucket"
_RETRIES: Final = "rest_client_request_retries_total"
_BY_POLICY: Final = "no_error"  # error_type of a rejection by a webhook
_HOST: Final = "kavip-webhook"


@dataclass(frozen=True, slots=True)
class WebhookCounters:
    """The counters of one API server at one moment; ``later - earlier`` is what happened in between."""

    counts: Counter[tuple[str, str]]

    @classmethod
    def read(cls, cluster: Cluster) -> "WebhookCounters":
        """Read ``/metrics`` of the API server."""
        return cls.parse(cluster.kubectl("get", "--raw=/metrics").stdout)

    @classmethod
    def parse(cls, text: str) -> "WebhookCounters":
        """Parse the text of ``/metrics``."""
        counts: Counter[tuple[str, str]] = Counter()
        for sample in _samples(text):
            if key := _key(sample):
                counts[sample.name, key] += int(sample.value)
        return cls(counts)

    def __add__(self, other: "WebhookCounters") -> "WebhookCounters":
        return WebhookCounters(self.counts + other.counts)

    def __sub__(self, earlier: "WebhookCounters") -> "WebhookCounters":
        return WebhookCounters(Counter({key: n - earlier.counts[key] for key, n in self.counts.items()}))

    @property
    def calls(self) -> int:
        """Calls of kavip's webhooks."""
        return self._sum(_REQUESTS)

    @property
    def by_code(self) -> dict[str, int]:
        """Calls by the status code of the result."""
        return {key: n for (name, key), n in sorted(self.counts.items()) if name == _REQUESTS and n}

    @property
    def refused(self) -> int:
        """Writes that kavip refused, as it should."""
        return self.counts[_REJECTIONS, _BY_POLICY]

    @property
    def lost(self) -> int:
        """Writes that were refused because kavip did not answer."""
        return self._sum(_REJECTIONS) - self.refused

    @property
    def fail_open(self) -> int:
        """Calls that were lost silently, because their failure policy is Ignore."""
        return self._sum(_FAIL_OPEN)

    @property
    def retried(self) -> int:
        """Calls that the API server repeated because kavip requested it."""
        return self._sum(_RETRIES)

    def within(self, share: float) -> float:
        """Seconds within which that *share* of the calls was answered: the upper bound of a bucket."""
        buckets = sorted((float(key), n) for (name, key), n in self.counts.items() if name == _SECONDS)
        return next((bound for bound, n in buckets if n >= share * buckets[-1][1]), 0.0)

    def _sum(self, metric: str) -> int:
        return sum(n for (name, _), n in self.counts.items() if name == metric)


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):
        yield from family.samples


def _key(sample: Sample) -> str:
    """The value of the label that separates kavip's calls in this metric; "" for other samples."""
    if sample.name == _RETRIES:
        return sample.labels["code"] if sample.labels["host"].startswith(_HOST) else ""
    by = {_REQUESTS: "code", _REJECTIONS: "error_type", _FAIL_OPEN: "type", _SECONDS: "le"}.get(sample.name)
    return sample.labels[by] if by and sample.labels["name"].endswith(_OURS) else ""
