"""The experiment that repeats runs with emulated links and devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import experiment
from native_runs import write_run
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.clocks.setup.network import devices
from edgefl.clocks.setup.plan import refuse_native
from edgefl.config.experiment import parts
from edgefl.config.file import load
from edgefl.errors import UserError
from edgefl.plugins.profile.command import profile
from edgefl.plugins.profile.repeat import (
    EdgeTables,
    Match,
    config_text,
    edge_tables,
    grouped,
    read,
    write,
)
from emulator.compute import Rate
from emulator.energy.power import DevicePower, radio_power

LINKS = frozenset(["links"])  # measured


def repeated(tmp_path: Path, run: Path, match: Match = Match.rate) -> Path:
    found = read(run)
    return write(found, tmp_path / "out", match, devices(found.experiment))[0]


# ------------------------------------------------------------------ the config
def test_the_config_has_what_was_measured_and_all_else_of_the_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "pis" / "fedavg", slower=2.0)
    experiment = load(repeated(tmp_path, run))
    refuse_native(experiment)
    original = load(run / "config.toml")
    kept = {"links", "devices", "groups", "name"}
    assert experiment.model_dump(exclude=kept) == original.model_dump(exclude=kept)
    assert (experiment.name, experiment.seed) == ("pis-repeat", 3)
    fast, slow = parts(experiment)
    assert (fast.ids, slow.ids) == (("pi-1",), ("pi-2",))
    rates = [(part.links.up_mbit_s, part.links.down_mbit_s) for part in (fast, slow)]
    assert rates == [(0.5, 1.0), (0.25, 0.5)]
    assert [part.links.latency_ms for part in (fast, slow)] == [20.0, 20.0]
    assert [part.devices.samples_per_s for part in (fast, slow)] == [320.0, 160.0]


def test_matching_times_puts_what_is_left_over_into_the_rates(tmp_path: Path) -> None:
    """From the download (1.02 s) to the upload at 6 s are 2.98 s more than the training."""
    run = write_run(tmp_path / "pis" / "fedavg")
    config = repeated(tmp_path, run, Match.time)
    (group,) = load(config).groups
    assert group.links["down_mbit_s"] == 1.0
    assert group.links["up_mbit_s"] == pytest.approx(0.5 * 2 / (2 + 2.98), rel=1e-4)
    assert "in the rates, for models of this size: 0.0 ms of a download" in config.read_text()


def test_an_emulated_device_keeps_its_own_speed_in_another_group(tmp_path: Path) -> None:
    of_devices = 'spread = "lognormal"\nsigma = 0.5\nsamples_per_s = 100.0'
    run = write_run(
        tmp_path / "pis" / "fedavg",
        edges=("a", "b", "c"),
        devices="emulated",
        of_devices=of_devices,
    )
    before, after = (devices(load(path)) for path in (run / "config.toml", repeated(tmp_path, run)))
    assert all(isinstance(device, Rate) for device in before.values()) and before == after


def test_an_emulated_device_keeps_a_speed_in_tokens(tmp_path: Path) -> None:
    of_devices = 'unit = "tokens"\ntokens_per_s = 100.0\nslowest_ratio = 2.0'
    run = write_run(tmp_path / "pis" / "fedavg", devices="emulated", of_devices=of_devices)
    again = parts(load(repeated(tmp_path, run)))
    kept = {(each.devices.unit, each.devices.per_s) for each in again}
    assert kept == {("tokens", 100.0), ("tokens", 50.0)}


def test_all_seeds_of_an_experiment_count(tmp_path: Path) -> None:
    for seed in (3, 4):
        run = write_run(tmp_path / "pis" / "fedavg" / f"seed{seed}")
        text = (run / "config.toml").read_text().replace("seed = 3", f"seed = {seed}")
        (run / "config.toml").write_text(text)
    config = repeated(tmp_path, tmp_path / "pis")
    assert load(config).seeds == (3, 4) and "device: 10 trainings" in config.read_text()


def test_a_rate_that_varied_becomes_a_trace_that_edgefl_reads(tmp_path: Path) -> None:
    run = write_run(tmp_path / "pis" / "fedavg", edges=("a",), rounds=12)
    rows = (run / "measured.csv").read_text().splitlines()
    halved = [
        row.replace(",125000", ",62500") if row.startswith("up") and at % 8 == 2 else row
        for at, row in enumerate(rows)
    ]
    (run / "measured.csv").write_text("\n".join([*halved, ""]))
    config, trace = write(read(run), tmp_path / "out", Match.rate, {})
    assert trace == tmp_path / "out" / "traces" / "a_up.csv"
    lines = trace.read_text().splitlines()
    assert lines[0] == "seconds,bit_s" and lines[-1] == "120.000000,"
    assert {line.split(",")[1] for line in lines[1:-1]} == {"250000", "500000"}
    assert load(config).groups[0].links["trace_up"] == "traces/a_up.csv"


# ------------------------------------------------------------------ groups
@pytest.mark.parametrize(
    ("ours", "theirs", "groups"),
    [
        ({"up_mbit_s": 1.0}, {"up_mbit_s": 1.021}, 2),
        ({"latency_ms": 0.1}, {"latency_ms": 0.3}, 1),  # nobody can tell these apart
        ({"up_mbit_s": 1.0}, {"up_mbit_s": 1.0, "jitter_ms": 1.0}, 2),
    ],
)
def test_neighbours_with_equal_numbers_are_one_group(
    ours: dict[str, float], theirs: dict[str, float], groups: int
) -> None:
    tables = [EdgeTables("a", ours, {}, LINKS), EdgeTables("b", theirs, {}, LINKS)]
    assert len(grouped(tables)) == groups


# ------------------------------------------------------------------ refusals


def test_too_few_transfers_are_named_by_edge(tmp_path: Path) -> None:
    run = write_run(tmp_path / "pis" / "fedavg", rounds=2)
    with pytest.raises(UserError) as refused:
        read(run)
    assert str(refused.value) == (
        f"{run}: measured too little: pi-1 has 2 of 3 downloads, 2 of 3 uploads, 2 of 3 heartbeats,"
        " 2 of 3 trainings; pi-2 has 2 of 3 downloads, 2 of 3 uploads, 2 of 3 heartbeats, 2 of 3"
        " trainings (a longer run measures more)"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"more": '[medium]\nkind = "cell"\nup_mbit_s = 5.0'}, "native links of this run are not"),
        (
            {"devices": "emulated", "of_devices": 'spread = "classes"'},
            "runtime classes are drawn for a whole group",
        ),
    ],
)
def test_what_cannot_be_repeated_is_said(
    tmp_path: Path, options: dict[str, str], said: str
) -> None:
    run = write_run(tmp_path / "pis" / "fedavg", **options)
    with pytest.raises(UserError, match=said):
        repeated(tmp_path, run)


def test_runs_of_different_experiments_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "pis" / "fedavg")
    write_run(tmp_path / "pis" / "other", edges=("x", "y"))
    with pytest.raises(UserError, match="fedavg and other are runs of different experiments"):
        read(tmp_path / "pis")


def test_a_config_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    run = write_run(tmp_path / "pis" / "fedavg")
    config = repeated(tmp_path, run)
    config.write_text("my own changes")
    with pytest.raises(UserError, match="already exists; choose another --out DIR"):
        repeated(tmp_path, run)
    assert config.read_text() == "my own changes"


def test_powers_stay_as_numbers_of_each_edge(tmp_path: Path) -> None:
    given = experiment(
        stop={"target_joules": 50.0},
        links={"profile": "lte", "radio": {}},
        devices={"profile": "pi4", "energy": {"idle_w": 2.0}},
    )
    tables = edge_tables(given, {}, {}, "", Match.time, devices(given))
    path = tmp_path / "again.toml"
    path.write_text(config_text(given, tables, "runs/first", None))
    for part in parts(load(path)):
        assert part.links.radio is not None and part.devices.energy is not None
        assert part.links.radio.power(None) == radio_power("lte")
        assert part.devices.energy.power(None) == DevicePower(2.0, 6.4)


# ------------------------------------------------------------------ the command
def test_it_prints_a_table_and_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "runs" / "pis" / "fedavg", slower=2.0)
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(app, ["profile", str(run), "--match", "rate"])
    assert told.exit_code == 0, told.output
    rows = {words[0]: words[1:] for line in told.stdout.splitlines() if (words := line.split())}
    assert rows["pi-1"][:5] == ["0.5", "1", "20.00", "-", "320"]
    assert rows["pi-2"][:5] == ["0.25", "0.5", "20.00", "-", "160"]
    assert told.stdout.splitlines()[-2:] == [
        "wrote pis-repeat/pis-repeat.toml",
        "next: edgefl run pis-repeat/pis-repeat.toml --clock virtual",
    ]
    assert (tmp_path / "pis-repeat" / "pis-repeat.toml").is_file()


def test_a_device_whose_speed_varied_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "pis" / "fedavg", edges=("pi-1",))
    with (run / "measured.csv").open("a") as rows:
        rows.writelines(f"training,pi-1,9,50,{50 + seconds},640\n" for seconds in (4, 8, 8))
    profile(run, tmp_path / "out")
    assert "which one number cannot hold: pi-1 (80 to 320 samples/s)" in capsys.readouterr().err
