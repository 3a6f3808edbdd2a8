"""Energy: sums of powers, edges by hand, named devices and radios, meters on made-up hosts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from emulator.energy.account import EnergyAccount, RunningTotal, Spent
from emulator.energy.meters import (
    HWMON,
    POWERCAP,
    PowerMeter,
    RaplMeter,
    ina219,
    open_meter,
    plug,
    plug_watts,
)
from emulator.energy.power import (
    DEVICE_POWER,
    POWER_SOURCES,
    RADIOS,
    DevicePower,
    EdgePower,
    RadioPower,
    device_power,
    radio_power,
)
from emulator.errors import BadValue, Unavailable

S = 1_000_000_000
W = 1_000_000  # in microwatts
J = 10**15  # in femtojoules
# 1 W always; 4 W more in training, 2 W in sending, 1 W in receiving
PLAIN = EdgePower(1 * W, 4 * W, 2 * W, 1 * W)
TAILED = EdgePower(0, 0, 2 * W, 1 * W, tail_uw=W // 2, tail_ns=10 * S)


def joined(power: EdgePower, *edges: str) -> EnergyAccount:
    account = EnergyAccount(dict.fromkeys(edges, power))
    assert all(account.joined(edge, 0) for edge in edges)
    return account


def sums(account: EnergyAccount, edge: str, now: int) -> dict[str, float]:
    return {state: fj / J for state, (fj, _) in account.by_edge(now)[edge].items() if fj}


def test_states_add_up_and_may_overlap() -> None:
    account = joined(PLAIN, "a")
    account.compute_begins("a", 1, 2 * S)
    account.transferred("a", "down", 3 * S, 6 * S, 100)
    account.compute_ends("a", 1, 7 * S)
    account.transferred("a", "up", 7 * S, 9 * S, 100)
    account.end(10 * S)
    assert sums(account, "a", 10 * S) == {"idle": 10, "compute": 20, "send": 4, "receive": 3}
    assert account.total.at(10 * S) == 37 * J
    assert account.by_edge(10 * S)["a"]["compute"][1] == 5 * S


def test_an_edge_counts_from_its_first_joining_on() -> None:
    account = EnergyAccount({"a": PLAIN})
    assert account.joined("a", 4 * S) and not account.joined("a", 6 * S)
    assert not account.joined("stranger", 6 * S)
    assert sums(account, "a", 10 * S) == {"idle": 6} and account.total.at(10 * S) == 6 * J


def test_only_the_task_that_is_computed_can_end_it() -> None:
    account = joined(PLAIN, "a")
    account.compute_begins("a", 2, 0)
    assert account.compute_ends("a", 1, 2 * S) == []
    assert account.compute_begins("a", 2, 3 * S) == [], "told twice"
    assert account.compute_begins("a", 3, 4 * S) == [Spent("a", "compute", 0, 4 * S, 16 * J)]
    assert account.compute_ends("a", None, 5 * S) == [Spent("a", "compute", 4 * S, 5 * S, 4 * J)]
    assert account.compute_ends("a", None, 6 * S) == []


def test_the_tail_of_a_transfer_ends_with_the_next_one() -> None:
    account = joined(TAILED, "a")
    account.transferred("a", "up", 0, 1 * S, 0)
    assert account.total.at(5 * S) == (2 + 2) * J, "4 s of tail so far"
    (tail, sent) = account.transferred("a", "down", 5 * S, 6 * S, 0)
    assert (tail.state, tail.began_ns, tail.ended_ns, tail.fj) == ("tail", 1 * S, 5 * S, 2 * J)
    assert sent.state == "receive"
    account.end(30 * S)
    assert sums(account, "a", 30 * S) == {"send": 2, "receive": 1, "tail": 2 + 5}
    assert account.total.at(30 * S) == 10 * J


def test_a_tail_begins_after_the_last_of_two_transfers_at_once() -> None:
    account = joined(TAILED, "a")
    account.transferred("a", "down", 2 * S, 3 * S, 0)
    account.transferred("a", "up", 0, 5 * S, 0)
    account.transferred("a", "down", 4 * S, 4 * S, 0)
    account.end(30 * S)
    assert sums(account, "a", 30 * S) == {"send": 10, "receive": 1, "tail": 5}
    assert account.total.at(30 * S) == 16 * J


def test_the_order_of_changes_does_not_matter() -> None:
    rng = random.Random(1)
    changes = [(rng.randrange(1, 9), rng.randrange(100)) for _ in range(50)]
    whole = sum(power * (200 - at) for power, at in changes)
    for _ in range(5):
        rng.shuffle(changes)
        total = RunningTotal()
        for number, (power, at) in enumerate(changes):
            total.change(power, at)
            total.at(number)  # some changes are in the past then, others in the future
        assert total.at(200) == whole


def test_a_target_is_looked_for_no_later_than_it_is_reached() -> None:
    total = RunningTotal()
    total.change(1, 0)
    total.change(9, 50)  # still to come: the moment may be as early as if it flowed already
    total.change(-9, 55)
    due = total.reaches(100)
    assert due == 10
    looks = 0
    while total.at(due) < 100:
        due, looks = total.reaches(100), looks + 1
        assert looks < 10
    assert due == 55 and total.fj == 100


def test_every_number_has_a_source_and_every_source_a_number() -> None:
    figures = [
        figure
        for table in (DEVICE_POWER, RADIOS)
        for fields in table.values()
        for figure in fields.values()
    ]
    assert {figure.source for figure in figures} == set(POWER_SOURCES)
    assert all(figure.remark for figure in figures)
    assert all("https://" in text for text in POWER_SOURCES.values())


def test_an_edge_adds_what_its_device_and_its_radio_need() -> None:
    radio = RadioPower(0.5, 2.5, 1.5, 0.1, 0.2, 1.0, 3.0)
    whole = EdgePower.of(DevicePower(2.0, 5.0), radio, latency_ns=7)
    assert whole == EdgePower(
        idle_uw=2_500_000,
        compute_uw=3_000_000,
        send_uw=2_000_000,
        receive_uw=1_000_000,
        send_fj_bit=10**8,
        receive_fj_bit=2 * 10**8,
        tail_uw=500_000,
        tail_ns=3_000_000_000,
        latency_ns=7,
    )
    assert EdgePower.of(None, None) == EdgePower(0, 0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: device_power("pi44"), "did you mean pi4?"),
        (lambda: device_power(None, idle_w=1.0), "compute_w: missing"),
        (lambda: device_power("pi4", compute_w=1.0), "compute_w: expected at least the idle power"),
        (lambda: device_power(None, idle_w=1e300, compute_w=1e308), "compute_w: expected at most"),
        (lambda: radio_power("lte", send_j_mbit=1e308), "send_j_mbit 1e+308: expected 0 to 1e+09"),
        (lambda: radio_power("lteee"), "did you mean lte?"),
        (lambda: radio_power(None, idle_w=1.0, receive_w=2.0), "send_w: missing"),
        (lambda: radio_power("lte", idle_w=1.2), "tail_w: expected at least the idle power"),
    ],
    ids=[
        *("unknown device", "half a device", "less than idle", "too much power", "too much energy"),
        *("unknown radio", "half", "tail"),
    ],
)
def test_bad_powers_are_one_line(call: Any, said: str) -> None:
    with pytest.raises(BadValue) as raised:
        call()
    assert said in str(raised.value) and "\n" not in str(raised.value)


def zone(root: Path, name: str, what: str, energy_uj: int, most_uj: int = 10_000) -> Path:
    folder = root / POWERCAP / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text(f"{what}\n")
    (folder / "max_energy_range_uj").write_text(f"{most_uj}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    return folder / "energy_uj"


def no_fetch(address: str) -> Any:
    raise AssertionError("nothing to fetch")


def test_rapl_adds_packages_and_memory_and_counts_from_its_first_reading(tmp_path: Path) -> None:
    first = zone(tmp_path, "intel-rapl:0", "package-0", 500)
    zone(tmp_path, "intel-rapl:0:0", "core", 7)  # a part of the package
    memory = zone(tmp_path, "intel-rapl:0:1", "dram", 100)
    second = zone(tmp_path, "intel-rapl:1", "package-1", 900)
    again = zone(tmp_path, "intel-rapl-mmio:0", "package-0", 500)
    meter = RaplMeter.open(tmp_path)
    assert meter.read_uj(0) == 0
    for path, value in ((first, 800), (memory, 150), (second, 1000), (again, 800)):
        path.write_text(f"{value}\n")
    assert meter.read_uj(S) == 300 + 50 + 100


def test_a_counter_that_begins_again_goes_on(tmp_path: Path) -> None:
    path = zone(tmp_path, "intel-rapl-mmio:0", "package-0", 9_990)  # the only one of its package
    meter = RaplMeter.open(tmp_path)
    path.write_text("5\n")
    assert meter.read_uj(S) == 16, "9990 to 10000, then 0 to 5"
    path.unlink()
    assert meter.read_uj(2 * S) is None


def test_a_host_without_rapl_says_so_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="^rapl: this host has no energy counters"):
        RaplMeter.open(tmp_path)


def test_counters_for_root_only_say_how_to_permit_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    monkeypatch.setattr("emulator.energy.meters.os.access", lambda path, mode: False)
    with pytest.raises(Unavailable, match="^rapl: .*only root may read it.* sudo chmod a"):
        RaplMeter.open(tmp_path)


def test_a_power_is_integrated_between_readings() -> None:
    powers: list[int | None] = [2_000_000, 4_000_000, None, 4_000_000, 4_000_000]
    meter = PowerMeter("test", lambda: powers.pop(0))
    read = [meter.read_uj(now * S) for now in (0, 2, 3, 4, 5)]
    # 2 s at 3 W on average; the second around the missing reading is not known
    assert read == [0, 6_000_000, None, 6_000_000, 10_000_000]


def test_an_ina219_is_found_by_its_driver(tmp_path: Path) -> None:
    for number, (name, power) in enumerate((("cpu_thermal", 1), ("ina219", 3_000_000))):
        folder = tmp_path / HWMON / f"hwmon{number}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "power1_input").write_text(f"{power}\n")
    meter = ina219(tmp_path)
    assert (meter.name, meter.read_uj(0), meter.read_uj(4 * S)) == ("ina219", 0, 12_000_000)
    with pytest.raises(Unavailable, match="^ina219: no sensor ina219, "):
        ina219(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("answer", "watts"),
    [
        ({"id": 0, "output": True, "apower": 4.5, "aenergy": {"total": 7.1}}, 4.5),
        ({"power": 3, "is_valid": True}, 3.0),
        ({"StatusSNS": {"ENERGY": {"Power": 12, "Total": 0.5}}}, 12.0),
        ({"power": "off"}, None),
        ({"power": -1}, None),
        (["power", 3], None),
        (None, None),
    ],
    ids=["shelly 2", "shelly 1", "tasmota", "text", "negative", "list", "nothing"],
)
def test_the_power_in_a_plugs_answer(answer: Any, watts: float | None) -> None:
    assert plug_watts(answer) == watts


def test_a_plug_that_does_not_answer_gives_no_reading() -> None:
    answers: list[Any] = [{"apower": 2.0}, OSError("unreachable"), {"apower": 2.0}]

    def fetch() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    meter = plug(fetch)
    assert [meter.read_uj(now * S) for now in range(3)] == [0, None, 0]


def test_a_user_names_the_meter(tmp_path: Path) -> None:
    assert open_meter("", no_fetch, tmp_path) is None
    assert open_meter("auto", no_fetch, tmp_path) is None
    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    found = open_meter("auto", no_fetch, tmp_path)
    assert isinstance(found, RaplMeter)
    asked: list[str] = []
    meter = open_meter("http://192.0.2.9/meter/0", asked.append, tmp_path)
    assert meter is not None and meter.read_uj(0) is None
    assert asked == ["http://192.0.2.9/meter/0"]
    with pytest.raises(BadValue, match="^meter 'wattmeter': expected one of rapl, ina219, auto"):
        open_meter("wattmeter", no_fetch, tmp_path)
