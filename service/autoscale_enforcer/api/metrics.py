"""What Prometheus reads on the admin port. Labels are closed sets, never text from errors.

Requests are counted as they are answered; everything else is read off where it lives, at a scrape.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from autoscale_enforcer.api.door.front_door import FrontDoor
from autoscale_enforcer.background import Background
from autoscale_enforcer.config.live import LiveConfig
from autoscale_enforcer.ledger.freezes import EVERYWHERE
from autoscale_enforcer.ledger.told import Noticed

if sys.version_info >= (3, 12):
    from typing import override
else:
    from typing_extensions import override

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds: from a healthy answer to what kube-scheduler waits at most."""

Readings = dict[str, float]


class Metrics:
    """One process' metrics."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "ae_requests",
            "Requests answered, by door, verb and HTTP status.",
            ["door", "verb", "code"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "ae_request_duration_seconds",
            "From the head of a request to its answer.",
            ["door", "verb"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._counts: dict[
            tuple[str, str, int], tuple[Callable[[], None], Callable[[float], None]]
        ] = {}
        """Those of each set of labels: to find them costs more than to count."""

        self._ports = dict[str, FrontDoor]()
        self._registry.register(_Ports(self._ports))
        self._frozen = Gauge(
            "ae_frozen", "1: an operator has stopped all grants.", registry=self._registry
        )
        self._frozen_nodes = Gauge(
            "ae_frozen_nodes",
            "Nodes on which an operator has stopped grants, one by one.",
            registry=self._registry,
        )

    def count(self, door: str, verb: str, status: int, seconds: float) -> None:
        """One request was answered."""
        counts = self._counts.get((door, verb, status))
        if counts is None:
            requests = self._requests.labels(door, verb, str(status))
            counts = requests.inc, self._seconds.labels(door, verb).observe
            self._counts[door, verb, status] = counts
        inc, observe = counts
        inc()
        observe(seconds)

    def note_freezes(self, freezes: Mapping[str, object]) -> None:
        """Where grants are stopped now, by node or EVERYWHERE."""
        self._frozen.set(EVERYWHERE in freezes)
        self._frozen_nodes.set(len(freezes.keys() - {EVERYWHERE}))

    def watch(
        self,
        *,
        is_leading: Callable[[], bool],
        config: LiveConfig,
        background: Background,
        readings: Callable[[], Readings],
    ) -> None:
        """Read these at each scrape; `readings` by metric name, such as a watch's age."""
        self._registry.register(_State(is_leading, config, background, readings))

    def watch_port(self, door: str, port: FrontDoor) -> None:
        """Read at each scrape who is connected there, and what is worked on."""
        self._ports[door] = port

    def watch_redis(self, noticed: Noticed) -> None:
        """Read at each scrape what this replica has seen of Redis."""
        self._registry.register(_Redis(noticed))

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self._registry)


class _State(Collector):
    def __init__(
        self,
        is_leading: Callable[[], bool],
        config: LiveConfig,
        background: Background,
        readings: Callable[[], Readings],
    ) -> None:
        self._is_leading, self._config = is_leading, config
        self._background, self._readings = background, readings

    @override
    def collect(self) -> Iterator[Metric]:
        """As it is now."""
        yield GaugeMetricFamily("ae_leader", "1: it leads.", value=float(self._is_leading()))
        yield GaugeMetricFamily(
            "ae_config_refused", "Configs kept out since the start.", value=self._config.refused
        )
        yield GaugeMetricFamily(
            "ae_config_is_bad",
            "1: the newest config is kept out, an older one holds.",
            value=float(bool(self._config.problems)),
        )
        failures = GaugeMetricFamily(
            "ae_task_failures",
            "Background tasks that failed and were started again.",
            labels=["task"],
        )
        for task, count in self._background.failures.items():
            failures.add_metric([task], count)
        yield failures
        for name, value in self._readings().items():
            yield GaugeMetricFamily(f"ae_{name}", READINGS[name], value=value)


class _Ports(Collector):
    def __init__(self, ports: Mapping[str, FrontDoor]) -> None:
        self._ports = ports

    @override
    def collect(self) -> Iterator[Metric]:
        """As it is now."""
        for kind, families in OF_PORTS.items():
            for name, (words, read) in families.items():
                family = kind(f"ae_{name}", words, labels=["door"])
                for door, port in self._ports.items():
                    family.add_metric([door], read(port))
                yield family


class _Redis(Collector):
    def __init__(self, noticed: Noticed) -> None:
        self._noticed = noticed

    @override
    def collect(self) -> Iterator[Metric]:
        """As it is now."""
        for name, words in OF_REDIS.items():
            count = getattr(self._noticed, name)
            yield CounterMetricFamily(f"ae_redis_{name}", words, value=count)


OF_PORTS: dict[
    type[GaugeMetricFamily | CounterMetricFamily],
    dict[str, tuple[str, Callable[[FrontDoor], float]]],
] = {
    GaugeMetricFamily: {
        "connections": ("Open at the door; --connections is the limit.", lambda p: p.places.taken),
        "requests_in_flight": (
            "Begun or about to be; --requests is the limit.",
            lambda p: p.turns.count,
        ),
        "large_body_bytes": ("Held of large bodies.", lambda p: p.bodies.held),
    },
    CounterMetricFamily: {
        "connections_evicted": (
            "Connections ended because a newcomer needed the place.",
            lambda p: p.places.evicted,
        ),
        "connections_refused": (
            "Newcomers turned away, every connection being at work.",
            lambda p: p.places.refused,
        ),
        "requests_refused": (
            "Requests told to ask again, too many being in flight.",
            lambda p: p.turns.refused,
        ),
        "large_bodies_refused": (
            "Requests told to ask again, too many having large bodies.",
            lambda p: p.bodies.refused,
        ),
    },
}
"""What a port tells of itself, by the kind of metric."""

OF_REDIS = {
    "epochs": "New epochs of the books, the first not counted: a restart, a promotion, a build.",
    "drops": "Primaries that lacked acknowledged writes of this replica, by their offsets.",
    "drops_unclear": "Primaries whose offsets do not say whether they lack any.",
    "unwaited": "Pipelines that replicas or disk did not confirm in time, so nothing was told.",
    "connects": "Times that a primary was found.",
}
"""Fields of `Noticed`."""

READINGS = {
    "watch_age_seconds": "Since the API server last proved that the quietest watch is heard.",
    "watch_relists": "Lists begun after the first.",
    "bad_objects": "Objects that could not be read.",
    "facts_waiting": "Facts that the ledger has not heard yet.",
    "repaired_rows": "Rows that compares changed, what nobody told before a takeover included.",
    "pending_pods": "Unbound pods.",
}
"""What a live cluster tells of itself."""
