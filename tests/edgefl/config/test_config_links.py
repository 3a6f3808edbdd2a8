"""[links], [devices], [[groups]] and [medium]: their effect on edges, and bad input."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import S, experiment, layout, vector
from paths import CONFIGS

from edgefl.clocks.setup.network import (
    devices,
    emulated_devices,
    latencies,
    network,
    shape_of,
    usual_bit_s,
)
from edgefl.clocks.setup.plan import fidelity, refuse_native
from edgefl.clocks.setup.rundir import OpenRun
from edgefl.config import file as config_file
from edgefl.config.experiment import group_warnings, parts
from edgefl.config.links import RadioEnergy
from edgefl.errors import UserError
from emulator.capacity.rates import Constant
from emulator.capacity.trace import Trace
from emulator.compute import Bursty, Drawn, Memoryless, Native, Rate, Throttled
from emulator.delay import Jitter
from emulator.links.bottleneck import SharedLink
from emulator.links.loss import Lossy
from emulator.tdma.channel import ChannelLink

MS = S // 1000
HETEROGENEOUS = CONFIGS / "heterogeneous.toml"
HEAD = """
edges = {count = 4}
stop = {versions = 1}
strategies = [{strategy = "fedavg"}]
"""
TWO = [{"name": "x", "count": 1}, {"name": "y", "count": 2}]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.toml"
    path.write_text(HEAD + text)
    return path


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[links]\nprofile = 'ltee'",
            (
                "links: link profile 'ltee' does not exist: did you mean lte? (valid: lte, 5g-sub6,"
                " wifi, dsl, satellite, nb-iot, lora-like)"
            ),
        ),
        (
            "[links]\ntrace_up = 'lost.csv'",
            "links.trace_up: trace lost.csv: cannot be read (No such file or directory)",
        ),
        (
            "[[groups]]\nname = 'x'\ncount = 3",
            "groups: their counts add up to 3, expected the number of edges (4)",
        ),
        (
            "[[groups]]\nname = 'x'\ncount = 4\nlinks = {up_mbits = 3}",
            "groups[0].links.up_mbits: unknown key (nearest: 'up_mbit_s')",
        ),
        (
            "[devices]\nspread = 'lognormal'",
            (
                'devices: sigma: missing; spread = "lognormal" needs it (the standard deviation of'
                " the logarithms)"
            ),
        ),
        (
            (
                "[devices]\nthrottling = {budget_s = 1, hot_share = 0.5, recovery_s = 1}\nbursts ="
                " {calm_s = 1, burst_s = 1, share = 0.5}"
            ),
            ('devices: throttling: expected only one of throttling, bursts and spread = "classes"'),
        ),
        ("[medium]\nkind = 'cell'", "medium: a cell needs up_mbit_s, down_mbit_s or both"),
        (
            "[medium]\nkind = 'tdma'\nrate_mbit_s = 1\nslot_ms = 1\nguard_ms = 2",
            "medium: slot_ms: expected more than guard_ms (2), found 1",
        ),
        (
            "[medium]\nkind = 'tdma'\nrate_mbit_s = 1\nslot_ms = 0.5\nguard_ms = 0.493",
            "medium: slot_ms: at 1 Mbit/s, 0.007 ms without the guard carry no byte",
        ),
        (
            "[medium]\nkind = 'bottleneck'\nup_mbit_s = 1\n[links]\nloss = 0.1",
            (
                'links.loss: edges on a medium of kind "bottleneck" have no rate of their own:'
                ' expected kind = "cell", or no loss'
            ),
        ),
    ],
)
def test_bad_input_gives_its_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(UserError) as caught:
        config_file.load(written(tmp_path, text))
    assert str(caught.value).replace(f"{tmp_path}/", "").startswith(f"x.toml: {line}")


def test_a_bad_trace_names_its_line_and_a_near_name(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("seconds,bit_s\n0,1000\n0,2000\n")
    for name, line in (
        ("train.csv", r"train.csv, line 3: 0.000000000 s does not come after"),
        ("trian.csv", r"cannot be read .*\(nearest: 'train.csv'\)"),
    ):
        with pytest.raises(UserError, match=line):
            config_file.load(written(tmp_path, f"[links]\ntrace_up = '{name}'"))


def test_a_dead_stretch_is_warned_of_once(tmp_path: Path) -> None:
    (tmp_path / "tunnel.csv").write_text("0,1000\n1,0\n4,1000\n5,\n")
    loaded = config_file.load(
        written(tmp_path, "[links]\ntrace_up = 'tunnel.csv'\ntrace_down = 'tunnel.csv'")
    )
    warning, repeats = group_warnings(loaded, tmp_path)
    assert warning.endswith(
        "tunnel.csv: nothing for 3.000000000 s from 1.000000000 s on (more than 1.000000000 s)"
    )
    assert repeats.endswith("tunnel.csv repeats every 5 s")


@pytest.mark.parametrize(("stop", "count"), [("emulated_s = 2", 0), ("emulated_s = 2.5", 1)])
def test_a_run_longer_than_its_trace_is_warned_of(tmp_path: Path, stop: str, count: int) -> None:
    (tmp_path / "t.csv").write_text("0,1000\n1,3000\n")
    loaded = config_file.load(
        written(tmp_path, "[links]\ntrace_up = 't.csv'\n"), [f"stop={{{stop}}}"]
    )
    said = group_warnings(loaded, tmp_path)
    assert len(said) == count
    assert all("t.csv repeats every 2 s: its last row lasts 1 s" in line for line in said)


def test_what_counts_for_nothing_is_warned_of(tmp_path: Path) -> None:
    text = "[medium]\nkind = 'tdma'\nslot_ms = 1\nrate_mbit_s = 1\n[links]\nprofile = 'lora-like'"
    (warning,) = group_warnings(config_file.load(written(tmp_path, text)), tmp_path)
    assert (
        warning == 'links: the loss of profile lora-like has no effect on a medium of kind "tdma",'
        " where edges have no rate of their own"
    )
    assert not group_warnings(config_file.load(written(tmp_path, text + "\nloss = 0")), tmp_path)
    assert not group_warnings(
        config_file.load(written(tmp_path, text.replace("lora-like", "lte"))), tmp_path
    )


TDMA = "[medium]\nkind = 'tdma'\nslot_ms = 1\nrate_mbit_s = 1\n"
SHARED_UP = "[medium]\nkind = 'bottleneck'\nup_mbit_s = 1\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (TDMA + "[links]\nup_mbit_s = 2\ndown_mbit_s = 20.5", "up_mbit_s = 2, down_mbit_s = 20.5"),
        (SHARED_UP + "[links]\nup_mbit_s = 2\ndown_mbit_s = 20.5", "up_mbit_s = 2"),
        (
            TDMA + "[[groups]]\nname = 'a'\ncount = 1\nlinks = {up_mbit_s = 3}\n"
            "[[groups]]\nname = 'b'\ncount = 3",
            "up_mbit_s = 3",
        ),
    ],
)
def test_rates_of_links_that_count_for_nothing(tmp_path: Path, text: str, what: str | None) -> None:
    found = group_warnings(config_file.load(written(tmp_path, text)), tmp_path)
    kind = "tdma" if "tdma" in text else "bottleneck"
    assert found == (
        []
        if what is None
        else [
            f'links: {what} has no effect on a medium of kind "{kind}", where edges have no'
            " rate of their own"
        ]
    )


# ------------------------------------------------------------------ who gets what
def test_groups_override_the_base_in_order(tmp_path: Path) -> None:
    given = experiment(
        links={"up_mbit_s": 3.0, "latency_ms": 7.0},
        devices={"samples_per_s": 50.0},
        groups=[
            {"name": "x", "count": 1, "links": {"down_mbit_s": 4.0}},
            {
                "name": "y",
                "count": 2,
                "links": {"profile": "dsl", "jitter_ms": 0.0},
                "devices": {"profile": "pi4"},
            },
        ],
    )
    x, y = parts(given)
    assert (x.ids, y.ids) == (("a",), ("b", "c"))
    assert (
        shape_of(x.links).rates_bit_s == {"up": 3_000_000, "down": 4_000_000}
        and shape_of(x.links).latency_ns == 7 * MS
    )
    assert shape_of(y.links).rates_bit_s == {
        "up": 1_000_000,
        "down": 8_400_000,
    }, "of the base nothing that the profile says"
    assert latencies(given) == {"a": 7 * MS, "b": 25 * MS, "c": 25 * MS}
    assert devices(given) == {"a": Rate(50.0), "b": Rate(1440.0), "c": Rate(1440.0)}


def test_what_a_group_says_is_not_hidden_by_the_base(tmp_path: Path) -> None:
    given = experiment(
        links={"trace_up": "t.csv", "trace_down": "t.csv"},
        devices={"samples_per_slot": 5.0},
        groups=[
            {"name": "x", "count": 1},
            {
                "name": "y",
                "count": 2,
                "links": {"up_mbit_s": 100.0},
                "devices": {"samples_per_s": 7.0},
            },
        ],
    )
    x, y = parts(given)
    assert (x.links.trace_up, x.links.trace_down, x.devices.samples_per_slot) == (*["t.csv"] * 2, 5)
    assert (y.links.trace_up, y.links.trace_down) == (None, "t.csv")
    assert (y.links.up_mbit_s, y.devices.samples_per_slot, y.devices.samples_per_s) == (
        100,
        None,
        7,
    )


def test_an_override_is_not_hidden_by_the_file(tmp_path: Path) -> None:
    text = "seeds = [1, 2]\nlinks = {trace_up = 't.csv', trace_down = 't.csv'}\n"
    path = tmp_path / "x.toml"
    path.write_text(text + HEAD)
    for name in ("t.csv", "u.csv"):
        (tmp_path / name).write_text("seconds,bit_s\n0,1000\n5,1000\n")
    changed = config_file.load(path, ["seed=1", "links.up_mbit_s=100"])
    assert (changed.seeds, changed.seed) == (None, 1)
    assert (changed.links.trace_up, changed.links.trace_down) == (None, "t.csv")
    both = config_file.load(path, ["links.up_mbit_s=100", "links.trace_up=u.csv"])
    assert both.links.trace_up == "u.csv"
    layer = tmp_path / "y.toml"
    layer.write_text('extends = "x.toml"\nname = "y"\nseed = 3\nlinks.down_mbit_s = 2\n')
    ours = config_file.load(layer)
    assert (ours.seeds, ours.links.trace_up, ours.links.trace_down) == (None, "t.csv", None)


def test_numbers_that_are_missing_are_those_of_the_profile() -> None:
    three = {"idle_w": 0.0, "send_w": 1.0, "receive_w": 1.0}
    lte = RadioEnergy.model_validate({"profile": "lte"}).power(None)
    assert lte.tail_w > 0
    of_profile = RadioEnergy.model_validate({"profile": "lte", **three}).power(None)
    of_links = RadioEnergy.model_validate(three).power("lte")
    assert of_profile == of_links == replace(lte, **three)
    unknown = RadioEnergy.model_validate(three).power("dsl")
    assert (unknown.send_w, unknown.tail_w) == (1, 0), "dsl has no known power"
    with pytest.raises(ValueError, match="nope"):
        RadioEnergy.model_validate({"profile": "nope", **three}).power(None)


def test_the_keys_beside_a_profile_override_it() -> None:
    shape = shape_of(experiment(links={"profile": "lte", "up_mbit_s": 2.5, "loss": 0.01}).links)
    assert (shape.rates_bit_s, shape.latency_ns, shape.jitter_ns, shape.loss) == (
        {"up": 2_500_000, "down": 29_500_000},
        10_500_000,
        5 * MS,
        0.01,
    )
    assert devices(experiment(devices={"profile": "pi5", "samples_per_s": 7.0}))["a"] == Rate(7.0)


def test_links_have_the_jitter_loss_and_trace_that_are_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("0,1000\n1,3000\n2,\n")
    links = network(
        experiment(
            links={
                "latency_ms": 10.0,
                "jitter_ms": 2.0,
                "loss": 0.01,
                "trace_up": "t.csv",
                "trace_start": "first_byte",
            }
        ),
        tmp_path,
    )
    up, other, down = links.link("a", "up"), links.link("b", "up"), links.link("a", "down")
    assert (
        isinstance(up.capacity, Lossy)
        and isinstance(up.capacity.capacity, Trace)
        and isinstance(up.delay, Jitter)
        and isinstance(other.delay, Jitter)
    )
    assert up.delay.seed != other.delay.seed and up.capacity is not other.capacity, (
        "it begins with the first byte of each link"
    )
    assert isinstance(down.capacity, Lossy) and isinstance(down.capacity.capacity, Constant)
    assert usual_bit_s(up.capacity) == 2000
    assert up.capacity.segment(5 * S)[1] == 6 * S, "asking for its usual rate has not begun it"


def test_a_group_whose_trace_begins_with_its_first_byte_leaves_that_of_others_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.csv").write_text("0,1000\n1,3000\n2,\n")
    groups = [TWO[0] | {"links": {"trace_start": "first_byte"}}, TWO[1]]
    links = network(experiment(links={"trace_up": "t.csv"}, groups=groups), tmp_path)
    first, *others = [links.link(edge, "up").capacity for edge in "abc"]
    assert first is not None and others[0] is not None and others[0] is others[1]
    for begins in (first, others[0]):  # at half a second
        begins.segment(S // 2)
    assert first.segment(S // 2) == (1000, 3 * S // 2), "the first byte begins it"
    assert others[0].segment(S // 2) == (1000, S), "it has begun with the run"


@pytest.mark.parametrize(
    ("kind", "caps"), [("bottleneck", [None, None]), ("cell", [10_000_000, 1_000_000])]
)
def test_a_bottleneck_has_no_caps_and_a_cell_has_those_of_the_links(
    kind: str, caps: list[int | None]
) -> None:
    groups = [TWO[0], TWO[1] | {"links": {"profile": "dsl"}}]
    links = network(experiment(medium={"kind": kind, "up_mbit_s": 5.0}, groups=groups), None)
    up = [links.link(edge, "up") for edge in "ab"]
    assert all(isinstance(link, SharedLink) for link in up)
    assert [
        (
            link.own.rate_bit_s
            if isinstance(link, SharedLink) and isinstance(link.own, Constant)
            else None
        )
        for link in up
    ] == caps
    assert not isinstance(links.link("a", "down"), SharedLink), "only upwards anything is shared"


def test_native_groups_stand_beside_emulated_ones() -> None:
    groups = [TWO[0] | {"links": {"kind": "native"}, "devices": {"kind": "native"}}, TWO[1]]
    given = experiment(groups=groups, medium={"kind": "tdma", "slot_ms": 1.0, "rate_mbit_s": 1.0})
    links = network(given, None)
    assert links.link("a", "up").capacity is None and isinstance(
        links.link("b", "down"), ChannelLink
    )
    assert devices(given)["a"] == Native() and emulated_devices(given) == {"b", "c"}
    with pytest.raises(
        UserError, match=r'groups\[0\]\.devices\.kind = "native" needs the wall clock'
    ):
        refuse_native(given)
    refuse_native(experiment(groups=TWO))


SPREADS: list[dict[str, Any]] = [
    {"slowest_ratio": 3.0},
    {"spread": "lognormal", "sigma": 0.5},
    {"spread": "classes", "task_samples": 100.0, "long": "mild"},
    {"spread": "exponential"},
    {"throttling": {"budget_s": 1.0, "hot_share": 0.5, "recovery_s": 2.0}},
    {"bursts": {"calm_s": 5.0, "burst_s": 1.0, "share": 0.25}},
]


@pytest.mark.parametrize(
    ("section", "kind"), list(zip(SPREADS, (Rate, Rate, Drawn, Memoryless, Throttled, Bursty)))
)
def test_devices_are_the_same_in_every_process_and_have_a_speed(
    section: dict[str, Any], kind: type[Any]
) -> None:
    def durations(seed: int) -> list[int | None]:
        made = devices(experiment(seed=seed, edges={"count": 5}, devices=section))
        assert all(
            isinstance(device, kind) and device.samples_per_s > 0 for device in made.values()
        ), "what the check of this host's speed asks for"
        return [
            device.duration_ns(5000, start_ns)
            for start_ns in (0, 20 * S)
            for device in made.values()
        ]

    assert durations(1) == durations(1)
    assert durations(1) != durations(2) or kind is Throttled, "hot at the same time, all alike"


CLASSED = {f"e{number:03d}": 100 * number + 10 for number in range(9)} | {"e009": 90_000}


def test_a_class_goes_by_the_edge_s_data_and_takes_its_time_for_all_of_it() -> None:
    """A task of all an edge's samples takes 10 to 20 s, 30 to 50 s or 500 to 800 s.

    With ``task_samples``, this holds for a task of this number of samples.
    """
    given = experiment(edges={"count": 10}, training={"epochs": 2}, devices={"spread": "classes"})
    made = devices(given, CLASSED)
    for edge, size in CLASSED.items():
        runtime, took_ns = made[edge].runtime, made[edge].duration_ns(2 * size, 7)
        assert made[edge].task_samples == 2 * size and runtime.low_ns <= took_ns <= runtime.high_ns
    assert made["e009"].runtime.name == "long"
    assert devices(given, CLASSED) == made != devices(given, dict.fromkeys(CLASSED, 100))


# ------------------------------------------------------------------ files and wires


@pytest.mark.parametrize(
    "change",
    [
        "groups.0.links.profile=wifi",
        "medium.up_mbit_s=9",
    ],
)
def test_the_digest_covers_groups_and_medium(change: str) -> None:
    digests = [
        config_file.shared_digest(loaded, loaded.strategies[0])
        for loaded in (config_file.load(HETEROGENEOUS, said) for said in ((), (change,)))
    ]
    assert digests[0] != digests[1]


def test_an_edge_needs_no_trace_file_and_a_run_keeps_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("0,1000\n1,3000\n")
    loaded = config_file.load(written(tmp_path, "[links]\ntrace_up = 't.csv'"))
    there = config_file.from_json(config_file.to_json(loaded, loaded.strategies[0]))
    assert there.links.trace_up == "t.csv"
    opened = OpenRun(loaded, 0, tmp_path / "out", tmp_path, vector(0, 0, 0), layout())
    opened.begin("virtual", fidelity(loaded))
    config = tmp_path / "out" / "config.toml"
    assert tomllib.loads(config.read_text())["run"]["base"] == str(tmp_path.resolve())
    assert config_file.load(config).links == loaded.links
