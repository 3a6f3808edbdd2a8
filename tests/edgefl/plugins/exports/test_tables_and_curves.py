"""Tests of the exports to TensorBoard, Parquet and MLflow, read back with these tools."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest
from builders import small_run
from recorded import record

from edgefl.errors import UserError
from edgefl.plugins.exports import mlflow, parquet, tensorboard
from edgefl.results.compare import load_run
from edgefl.results.read import read_csv, read_events
from edgefl.results.timeline import of_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scored = {"edges": {"every_versions": 2, "held_out": 0.2}}
    folder = tmp_path_factory.mktemp("runs")
    _, directory = small_run(folder, stop={"versions": 5}, evaluation=scored)
    return directory


@pytest.fixture
def killed(run: Path, tmp_path: Path) -> Path:
    """As after kill -9: torn last lines, no summary."""
    for name in ("events.jsonl", "links.csv", "metrics.csv", "config.toml"):
        data = (run / name).read_bytes()
        (tmp_path / name).write_bytes(data if name == "config.toml" else data[:-20])
    return tmp_path


# ---------------------------------------------------------------------- TensorBoard
def scalars(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    """(step, seconds, value) of each tag."""
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = reader.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {
        tag: [(each.step, each.wall_time, each.value) for each in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def test_tensorboard_has_each_point_once(run: Path, tmp_path: Path) -> None:
    for _ in range(2):
        (place,) = tensorboard.write({"fedavg": run}, str(tmp_path / "tb"))
    found, rows = scalars(Path(place)), read_csv(run / "metrics.csv")
    expected = [(int(r["version"]), float(r["emulated_s"]), float(r["accuracy"])) for r in rows]
    assert [each[0] for each in found["accuracy/test"]] == [each[0] for each in expected]
    for each, wanted in zip(found["accuracy/test"], expected):
        assert each == pytest.approx(wanted, abs=1e-6)
    gaps = of_run(run).gap_rows()
    assert [each[2] for each in found["staleness"]] == gaps["versions"].tolist()
    assert set(found) >= {"loss/test", "bytes/up", "bytes/down"}
    scored = [float(row["accuracy"]) for row in read_csv(run / "clients.csv")]
    worst = found["accuracy on edges/worst_tenth"]
    assert [each[0] for each in worst] == [0, 2, 4, 5]
    assert worst[-1][2] == pytest.approx(min(scored[-3:]), abs=1e-6)


def test_tensorboard_keeps_runs_apart_whose_names_differ_in_a_slash(tmp_path: Path) -> None:
    runs = {name: record(tmp_path / name) for name in ("x/fedavg", "x_fedavg")}
    for _ in range(2):
        places = tensorboard.write(runs, str(tmp_path / "tb"))
    assert places == [str(tmp_path / "tb" / name) for name in ("x_fedavg", "x_fedavg_")]
    assert all(scalars(Path(place)) for place in places)


# ---------------------------------------------------------------------- Parquet
def table(path: Path) -> list[dict[str, object]]:
    return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()


def test_parquet_has_all_rows_with_types(run: Path, tmp_path: Path) -> None:
    written = parquet.write({"one": run, "two": run}, str(tmp_path))
    names = {Path(path).stem for path in written}
    assert names >= {"events", "decisions", "metrics", "links", "slices", "instants"}
    links, rows = table(tmp_path / "links.parquet"), read_csv(run / "links.csv")
    assert len(links) == 2 * len(rows) and {row["run"] for row in links} == {"one", "two"}
    first = rows[0]
    assert links[0] == {
        "run": "one",
        "edge": first["edge"],
        "direction": first["direction"],
        "kind": first["kind"],
        "bytes": int(first["bytes"]),
        **{name: float(first[name]) for name in ("offered_s", "scheduled_s", "finished_s")},
    }
    events, lines = table(tmp_path / "events.parquet"), read_events(run / "events.jsonl")
    assert len(events) == 2 * len(lines)
    arrived = next(row for row in events if row["event"] == "update_arrived")
    line = lines[arrived["line"] - 1]
    assert (arrived["t"], arrived["edge"]) == (line["t"], line["edge"])
    assert arrived["numbers.samples"] == line["numbers"]["samples"]
    scored = table(tmp_path / "clients.parquet")
    assert len(scored) == 2 * 4 * 3
    assert {type(row["samples"]) for row in scored} == {int}


def test_parquet_has_a_decision_per_edge(run: Path, tmp_path: Path) -> None:
    parquet.write({"one": run}, str(tmp_path))
    assigned = [r for r in table(tmp_path / "decisions.parquet") if r["do"] == "assign"]
    assert [(row["edge"], row["task"]) for row in assigned][:3] == [("a", 0), ("b", 1), ("c", 2)]
    slices = table(tmp_path / "slices.parquet")
    found = of_run(run)
    assert len(slices) == len(found.slices) + len(found.open_slices())
    assert {row["lane"] for row in slices} == {"compute", "uplink", "downlink"}


def test_parquet_has_the_ages(tmp_path: Path) -> None:
    """a has version 0 from 1 s and version 1 (published at 4 s) from 5 s on, b version 0."""
    parquet.write({"one": record(tmp_path / "slow")}, str(tmp_path / "out"))
    held = table(tmp_path / "out" / "edge_models.parquet")
    assert [(row["edge"], row["begin_s"], row["of_s"], row["at_work"]) for row in held] == [
        *(("a", 1.0, 0.0, True), ("b", 1.0, 0.0, True), ("a", 4.0, 0.0, False)),
        *(("a", 5.0, 4.0, True), ("b", 7.0, 0.0, False)),
    ]
    merged = table(tmp_path / "out" / "merged_updates.parquet")
    assert [(row["edge"], row["age_s"], row["age_versions"]) for row in merged] == [
        *(("a", 4.0, 0), ("b", 7.0, 1), ("a", 4.0, 1)),
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 0.5], [1.0, 0.5]),
        (["a", 1, None], ["a", "1", None]),
        ([[1, 2], None], ["[1,2]", None]),
        ([True, False], [True, False]),
    ],
)
def test_a_column_of_mixed_values_has_one_type(
    tmp_path: Path, values: list[object], expected: list[object]
) -> None:
    rows = [{"t": 1.0, "fact": "made up", "own": value} for value in values]
    (tmp_path / "events.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    parquet.write({"one": tmp_path}, str(tmp_path / "out"))
    assert [row["own"] for row in table(tmp_path / "out" / "events.parquet")] == expected


def test_parquet_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to export: its files have no rows"):
        parquet.write({"a": tmp_path}, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    (tmp_path / "links.csv").write_text("edge,direction\na,up\n")
    with pytest.raises(UserError, match=r"--out .*file: expected a folder"):
        parquet.write({"a": tmp_path}, str(tmp_path / "file"))


# ---------------------------------------------------------------------- MLflow
@pytest.mark.rest  # MLflow makes its tables, which takes long
@pytest.mark.processes  # MLflow asks for the processor's name
def test_mlflow_has_each_run_once(run: Path, killed: Path, tmp_path: Path) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    place = tmp_path / "store" / "mlflow.db"
    for _ in range(2):
        mlflow.write({"fedavg": run, "killed": killed}, str(place))
    client = tracking.MlflowClient(tracking_uri=f"sqlite:///{place}")
    (experiment,) = [e for e in client.search_experiments() if e.name != "Default"]
    found = {each.info.run_name: each for each in client.search_runs([experiment.experiment_id])}
    assert {name: each.info.status for name, each in found.items()} == {
        "fedavg": "FINISHED",
        "killed": "KILLED",
    }
    data, row = found["fedavg"].data, load_run(run, "fedavg")
    assert data.metrics["versions"] == row.versions == 5
    assert data.metrics["final_accuracy"] == pytest.approx(row.final_accuracy)
    assert data.params["links.up_mbit_s"] == "0.01"
    assert (data.tags["strategy"], data.tags["verdict"]) == (row.strategy, row.verdict)
    curve = client.get_metric_history(found["fedavg"].info.run_id, "accuracy")
    assert [(each.step, each.timestamp) for each in sorted(curve, key=lambda e: e.step)] == [
        (int(r["version"]), round(1000 * float(r["emulated_s"])))
        for r in read_csv(run / "metrics.csv")
    ]


@pytest.mark.rest
@pytest.mark.processes
def test_an_export_to_mlflow_that_breaks_off_is_replaced_by_the_next(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has keys of its user that MLflow refuses."""
    tracking = pytest.importorskip("mlflow.tracking")
    place, mine = tmp_path / "mlflow.db", tmp_path / "mine"
    client = tracking.MlflowClient(tracking_uri=f"sqlite:///{place}")
    shutil.copytree(run, mine)
    with (mine / "config.toml").open("a") as file:
        file.write('[run.digests]\n"~/net[1].py" = "ab"\n[flower.run_config]\n"lr+x" = 1\n')

    def found() -> dict[str, str]:
        ids = [each.experiment_id for each in client.search_experiments()]
        return {each.info.run_id: each.info.status for each in client.search_runs(ids)}

    def refused(*words: object, **more: object) -> None:
        raise client_error("the disk is full")

    mlflow.write({"mine": mine}, str(place))
    (first,) = found()
    data = client.get_run(first).data
    assert data.tags["edgefl.digests"] == '{"~/net[1].py":"ab"}'
    assert data.params["flower.run_config"] == '{"lr+x":1}'
    with monkeypatch.context() as patch:
        client_error = pytest.importorskip("mlflow.exceptions").MlflowException
        patch.setattr(tracking.MlflowClient, "log_batch", refused)
        with pytest.raises(UserError, match="MLflow cannot write there: the disk is full"):
            mlflow.write({"mine": mine}, str(place))
    assert len(found()) == 2 and found()[first] == "FINISHED"
    mlflow.write({"mine": mine}, str(place))
    assert [*found().values()] == ["FINISHED"] and first not in found()


@pytest.mark.processes
def test_mlflow_names_the_numbers_of_another_score_after_it(run: Path, tmp_path: Path) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    facts = orjson.loads((run / "summary.json").read_bytes())
    (tmp_path / "metrics.csv").write_bytes((run / "metrics.csv").read_bytes())
    (tmp_path / "summary.json").write_bytes(
        orjson.dumps(facts | {"metric": "perplexity", "final_perplexity": 7.0})
    )
    mlflow.write({"it": tmp_path}, str(tmp_path / "mlflow.db"))
    client = tracking.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    ids = [each.experiment_id for each in client.search_experiments()]
    (found,) = client.search_runs(ids)
    assert found.data.metrics["final_perplexity"] == 7.0
    assert "final_accuracy" not in found.data.metrics


@pytest.mark.processes  # as above, and a socket
def test_mlflow_on_a_server_that_is_not_there(run: Path) -> None:
    pytest.importorskip("mlflow")
    with pytest.raises(UserError, match=r"--out http://127\.0\.0\.1:9: MLflow cannot write there"):
        mlflow.write({"a": run}, "http://127.0.0.1:9")
