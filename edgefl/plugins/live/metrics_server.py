"""The state of running runs as Prometheus metrics, served until the parent process ends it.

Each run is a label ``run``, such as "fedavg" or "fedavg seed 2". Its files are read when a scrape
asks for the metrics, so nothing is read without a request.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from edgefl.config.scores import ACCURACY, SCORES
from edgefl.errors import UserError
from edgefl.plugins.exports.export_format import runs_of
from edgefl.plugins.live.feeds import RunFeed
from edgefl.plugins.live.guard import LOOPBACK
from edgefl.plugins.live.run_model import RunModel
from edgefl.plugins.live.serve import after_parent, companion
from edgefl.results.progress import STATES
from edgefl.results.read import number

if TYPE_CHECKING:
    from prometheus_client.core import Metric

GAPS = (0, 1, 2, 4, 8, 16, 32, 64)  # upper ends of the buckets of staleness
FURTHER = {*SCORES} - {ACCURACY.name}
SHARES = {name: ", 0 to 1" * (score.largest == 1) for name, score in SCORES.items()}
TITLES = {
    name: f"{score.title[0].upper()}{score.title[1:]} on the test set{SHARES[name]}"
    for name, score in SCORES.items()
}
TITLES |= {"test_loss": "Loss on the test set", "train_loss": "Loss on training data"}


class RunMetrics:
    """A collector for ``prometheus_client``: all runs in a folder, also those that begin later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._feeds: dict[Path, RunFeed] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all runs as they are now."""
        try:
            runs = runs_of([self._folder])
        except UserError:  # none has begun
            runs = {}
        self._feeds = {run: self._feeds.get(run) or RunFeed(run) for run in runs.values()}
        feeds = {name: self._feeds[run] for name, run in runs.items()}
        damaged = _gauge("damaged", "1 if the run has a file that cannot be read")
        for name, feed in feeds.items():
            while feed.read(time.time()):
                pass
            damaged.add_metric([name], float(bool(feed.trouble)))
        models = {name: feed.model for name, feed in feeds.items()}
        yield damaged
        yield from _of_runs(models)
        yield from _of_updates(models)
        yield from _of_links(models)
        yield from _of_hosts(models)


def _gauge(name: str, text: str, *labels: str) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"edgefl_{name}", text, labels=("run", *labels))


def _counter(name: str, text: str, *labels: str) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(f"edgefl_{name}", text, labels=("run", *labels))


def _of_runs(runs: dict[str, RunModel]) -> Iterator[Metric]:
    emulated = _gauge("emulated_seconds", "Emulated time of the latest row")
    version = _gauge("version", "Version of the global model")
    finished = _gauge("finished", "1 if the run has ended")
    edges = _gauge("edges", "Edges by what they do", "state")
    curves = {name: _gauge(name, text) for name, text in TITLES.items()}
    for name, run in runs.items():
        emulated.add_metric([name], run.progress.emulated_s)
        version.add_metric([name], run.progress.version)
        finished.add_metric([name], float(run.progress.finished is not None))
        states = run.progress.states()
        for state in STATES:
            edges.add_metric([name, state], states.get(state, 0))
        for curve, value in run.latest.items():
            curves[curve].add_metric([name], value)
    # the accuracy always has a line; another score, if a run measures it
    told = [curve for name, curve in curves.items() if name not in FURTHER or curve.samples]
    yield from (emulated, version, finished, edges, *told)


def _of_updates(runs: dict[str, RunModel]) -> Iterator[Metric]:
    from prometheus_client.core import HistogramMetricFamily

    updates = _counter("updates", "Updates of edges by what became of them", "outcome")
    discarded = _counter("updates_discarded", "Discarded updates by reason", "reason")
    stale = HistogramMetricFamily(
        "edgefl_staleness_versions", "Staleness of arrived updates, in versions", labels=["run"]
    )
    for name, run in runs.items():
        counted = run.progress.counters
        for outcome, count in (
            ("received", counted.updates_received),
            ("applied", counted.updates_applied),
            ("discarded", counted.discards.total()),
        ):
            updates.add_metric([name, outcome], count)
        for reason, count in sorted(counted.discards.items()):
            discarded.add_metric([name, reason], count)
        gaps = counted.staleness
        buckets = [
            (f"{most:.1f}", sum(n for gap, n in gaps.items() if gap <= most)) for most in GAPS
        ]
        total = sum(gap * n for gap, n in gaps.items())
        stale.add_metric([name], [*buckets, ("+Inf", gaps.total())], total)
    yield from (updates, discarded, stale)


def _of_links(runs: dict[str, RunModel]) -> Iterator[Metric]:
    sent = _counter("bytes", "Bytes of transfers that have ended", "direction")
    rate = _gauge(
        "link_bits_per_second", "Goodput of all edges in the latest emulated seconds", "direction"
    )
    errors = _counter("wire_errors", "Messages that could not be read")
    for name, run in runs.items():
        rates = run.progress.rates_bit_s().values()
        for place, way in enumerate(("up", "down")):
            rate.add_metric([name, way], sum(each[place] for each in rates))
            sent.add_metric([name, way], run.link_bins.bytes[way])
        errors.add_metric([name], run.progress.wire_errors)
    yield from (sent, rate, errors)


def _of_hosts(runs: dict[str, RunModel]) -> Iterator[Metric]:
    cpu = _gauge("host_cpu_percent", "All cores of the host", "host")
    celsius = _gauge("host_temperature_celsius", "The host's processor", "host")
    slowed = _gauge("host_throttled", "1 if the host's processor is slowed down", "host")
    for name, run in runs.items():
        count = Counter(host.name for host in run.progress.hosts.values())
        for machine, host in run.progress.hosts.items():
            alone = count[host.name] == 1
            labels = [name, host.name if alone else f"{host.name} ({machine[:OF_MACHINE]})"]
            slowed.add_metric(labels, float(bool(host.trouble)))
            for family, text in ((cpu, host.cpu_percent), (celsius, host.temperature_c)):
                if (value := number(text)) is not None:
                    family.add_metric(labels, value)
    yield from (cpu, celsius, slowed)


OF_MACHINE = 6  # characters of its id, where several machines have one name
PATIENCE_S = 5.0  # for one request, since the server takes one after another

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class MetricsHandler(WSGIRequestHandler):
    """Gives up on a client that says nothing, and prints no line per request."""

    timeout = PATIENCE_S

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal is the run's."""


def metrics_app(folder: Path) -> Application:
    """Return the WSGI application: metrics for this machine's own names, 403 for others.

    The address of another machine that leads here (DNS rebinding) would let a page of the web read
    them.
    """
    from prometheus_client import CollectorRegistry, make_wsgi_app

    registry = CollectorRegistry()
    registry.register(RunMetrics(folder))
    metrics: Application = make_wsgi_app(registry)

    def app(environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        name = urlsplit(f"//{environ.get('HTTP_HOST', '')}").hostname
        if name not in LOOPBACK:
            respond("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"these metrics are only for their own machine\n"]
        return metrics(environ, respond)

    return app


def serve_metrics(listening: socket.socket, folder: Path, parent: int) -> None:
    """Serve until the other end of ``parent``, a descriptor, is closed."""
    server = WSGIServer(("", 0), MetricsHandler, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    server.server_name, server.server_port = listening.getsockname()[:2]
    server.setup_environ()
    server.set_app(metrics_app(folder))
    after_parent(parent, server.shutdown)
    server.serve_forever()


def main() -> None:
    """Serve beside a run: ``python -m edgefl.plugins.live.metrics_server FD``, JSON on stdin."""
    with companion() as (listening, told, parent):
        serve_metrics(listening, Path(told["runs"]), parent)


if __name__ == "__main__":
    main()
