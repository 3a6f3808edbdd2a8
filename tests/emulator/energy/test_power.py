"""The power of named devices and radios: numbers, sources, overrides, bad input, the listing."""

from __future__ import annotations

from typing import Any

import pytest

from emulator.cli import run
from emulator.energy.power import (
    DevicePower,
    EdgePower,
    RadioPower,
    device_power,
    radio_power,
)
from emulator.energy.power_table import DEVICE_POWER, POWER_SOURCES, RADIOS
from emulator.errors import BadValue


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


def test_devices_and_radios_are_complete_and_plausible() -> None:
    for name in DEVICE_POWER:
        device = device_power(name)
        assert 0.05 < device.idle_w < device.compute_w < 100, name
    for name in RADIOS:
        radio = radio_power(name)
        assert 0 <= radio.idle_w < radio.receive_w <= radio.send_w < 5, name


def test_one_lte_packet_costs_what_its_paper_says() -> None:
    """Huang et al. give 12.76 J for one packet, promotion (0.31 J) and tail included."""
    radio = radio_power("lte")
    assert radio.tail_w * radio.tail_s == pytest.approx(12.76 - 0.31, abs=0.2)


def test_any_number_can_be_overridden() -> None:
    assert device_power("pi4", idle_w=2.0, compute_w=None) == DevicePower(2.0, 6.4)
    assert device_power(None, idle_w=1.0, compute_w=1.0) == DevicePower(1.0, 1.0)
    plain = radio_power(None, idle_w=0.0, send_w=2.0, receive_w=1.0)
    assert plain == RadioPower(0.0, 2.0, 1.0)


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
        (lambda: radio_power("lteee"), "did you mean lte?"),
        (lambda: radio_power(None, idle_w=1.0, receive_w=2.0), "send_w: missing"),
        (lambda: radio_power("lte", idle_w=1.2), "tail_w: expected at least the idle power"),
    ],
    ids=["unknown device", "half a device", "less than idle", "unknown radio", "half", "tail"],
)
def test_bad_input_is_one_line(call: Any, said: str) -> None:
    with pytest.raises(BadValue) as raised:
        call()
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_the_listing_shows_power_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    run(["profiles"])
    out = capsys.readouterr().out
    for name in (*DEVICE_POWER, *RADIOS):
        assert name in out
    for text in POWER_SOURCES.values():
        assert text in out


@pytest.mark.parametrize("name", ["pi4", "lte", "phone"])
def test_one_profile_shows_each_number_with_its_source(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["profiles", name])
    out = capsys.readouterr().out
    for figure in {**DEVICE_POWER.get(name, {}), **RADIOS.get(name, {})}.values():
        assert figure.remark in out and POWER_SOURCES[figure.source] in out
    assert ("[devices.energy]" in out) == (name in DEVICE_POWER)
    assert ("[links.radio]" in out) == (name in RADIOS)
