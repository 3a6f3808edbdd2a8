"""The state of running runs as Prometheus metrics, served until the parent process ends it.

Each run is a label ``run``, such as "fedavg" or "fedavg seed 2". Its files are read when a scrape
asks for the metrics, so nothing is read without a request.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import numpy as np
import orjson

from edgefl.config.scores import ACCURACY, SCORES
from edgefl.errors import UserError
from edgefl.plugins.exports.export_format import runs_of
from edgefl.plugins.live.guard import LOOPBACK
from edgefl.plugins.live.serve import NICE
from edgefl.record.files import EVENTS, HOSTS, LINKS, METRICS
from edgefl.results.progress import STATES, Progress
from edgefl.results.read import AT_ONCE, TableTail, Tail, number, parse_events

if TYPE_CHECKING:
    from prometheus_client.core import Metric

GAPS = (0, 1, 2, 4, 8, 16, 32, 64)  # upper ends of the buckets of staleness
FURTHER = {*SCORES} - {ACCURACY.name}
SHARES = {name: ", 0 to 1" * (score.largest == 1) for name, score in SCORES.items()}
CURVES = {
    name: f"{score.title[0].upper()}{score.title[1:]} on the test set{SHARES[name]}"
    for name, score in SCORES.items()
}
CURVES |= {"test_loss": "Loss on the test set", "train_loss": "Loss on training data"}


class _Followed:
    """The files of one run, read as far as they have grown."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._begin()

    def _begin(self) -> None:
        self.progress, self.latest = Progress(), dict[str, float]()
        self._evaluated_s = -1.0
        self._events = Tail(self._run / EVENTS)
        self._links = TableTail(self._run / LINKS)
        self._tables = {name: TableTail(self._run / name) for name in (METRICS, HOSTS)}

    def read(self) -> bool:
        """Read what is new; False if a file is damaged.

        A run that was begun anew is read from its begin.
        """
        try:
            self._read()
            anew = self._events.anew or self._links.anew
            if anew or any(table.anew for table in self._tables.values()):
                self._begin()
                self._read()
        except UserError:  # a compressed part
            return False
        return True

    def _read(self) -> None:
        while lines := self._events.read_new(AT_ONCE):
            self.progress.take_events(parse_events(lines))
        while (links := self._links.read_columns(AT_ONCE)).count:
            self.progress.take_links(links)
            for way in ("up", "down"):
                sizes = links["bytes"][links["direction"] == links.texts.number(way)]
                self.progress.counters.link(way, int(np.nansum(sizes)))
        while rows := self._tables[HOSTS].read_new(AT_ONCE):
            self.progress.take_hosts(rows)
        while rows := self._tables[METRICS].read_new(AT_ONCE):
            self.progress.take_metrics(rows)
            for row in rows:
                self._evaluated(row)

    def _evaluated(self, row: dict[str, str]) -> None:
        at_s = number(row.get("emulated_s"))
        if at_s is not None and at_s >= self._evaluated_s:  # rows may be out of order
            self._evaluated_s = at_s
            values = {name: number(row.get(name)) for name in CURVES}
            self.latest = {name: value for name, value in values.items() if value is not None}


class RunMetrics:
    """A collector for ``prometheus_client``: all runs in a folder, also those that begin later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._followed: dict[Path, _Followed] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all runs as they are now."""
        try:
            found = runs_of([self._folder])
        except UserError:  # none has begun
            found = {}
        runs: dict[str, _Followed] = {}
        damaged = _gauge("damaged", "1 if the run has a file that cannot be read")
        for name, run in found.items():
            runs[name] = self._followed.setdefault(run, _Followed(run))
            damaged.add_metric([name], float(not runs[name].read()))
        self._followed = {run: self._followed[run] for run in found.values()}
        yield damaged
        yield from _of_runs(runs)
        yield from _of_updates(runs)
        yield from _of_links(runs)
        yield from _of_hosts(runs)


def _gauge(name: str, text: str, *labels: str) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"edgefl_{name}", text, labels=("run", *labels))


def _counter(name: str, text: str, *labels: str) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(f"edgefl_{name}", text, labels=("run", *labels))


def _of_runs(runs: dict[str, _Followed]) -> Iterator[Metric]:
    emulated = _gauge("emulated_seconds", "Emulated time of the latest row")
    version = _gauge("version", "Version of the global model")
    finished = _gauge("finished", "1 if the run has ended")
    edges = _gauge("edges", "Edges by what they do", "state")
    curves = {name: _gauge(name, text) for name, text in CURVES.items()}
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


def _of_updates(runs: dict[str, _Followed]) -> Iterator[Metric]:
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


def _of_links(runs: dict[str, _Followed]) -> Iterator[Metric]:
    sent = _counter("bytes", "Bytes of transfers that have ended", "direction")
    rate = _gauge(
        "link_bits_per_second", "Goodput of all edges in the latest emulated seconds", "direction"
    )
    errors = _counter("wire_errors", "Messages that could not be read")
    for name, run in runs.items():
        counted, rates = run.progress.counters, run.progress.rates_bit_s().values()
        for place, way in enumerate(("up", "down")):
            rate.add_metric([name, way], sum(each[place] for each in rates))
        sent.add_metric([name, "up"], counted.bytes_up)
        sent.add_metric([name, "down"], counted.bytes_down)
        errors.add_metric([name], run.progress.wire_errors)
    yield from (sent, rate, errors)


def _of_hosts(runs: dict[str, _Followed]) -> Iterator[Metric]:
    cpu = _gauge("host_cpu_percent", "All cores of the host", "host")
    celsius = _gauge("host_temperature_celsius", "The host's processor", "host")
    slowed = _gauge("host_throttled", "1 if the host's processor is slowed down", "host")
    for name, run in runs.items():
        for host in run.progress.hosts.values():
            labels = [name, host.name]
            slowed.add_metric(labels, float(bool(host.trouble)))
            for family, text in ((cpu, host.cpu_percent), (celsius, host.temperature_c)):
                if (value := number(text)) is not None:
                    family.add_metric(labels, value)
    yield from (cpu, celsius, slowed)


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
    threading.Thread(target=_end_with, args=(parent, server), daemon=True).start()
    server.serve_forever()


def _end_with(parent: int, server: WSGIServer) -> None:
    while os.read(parent, 1):
        pass
    server.shutdown()


def main() -> None:
    """Serve beside a run: ``python -m edgefl.plugins.live.metrics_server FD``, JSON on stdin."""
    os.nice(NICE)
    told = orjson.loads(sys.stdin.buffer.readline())
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        serve_metrics(listening, Path(told["runs"]), sys.stdin.fileno())


if __name__ == "__main__":
    main()
