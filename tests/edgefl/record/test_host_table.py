"""The hosts of a run from the reports of their edges."""

from __future__ import annotations

import pytest
from host_reports import FACTS, REPORT
from msgspec.structs import replace

from edgefl.record.host_table import HostTable, throttling
from emulator.units import NS_PER_S

S_US = 1_000_000


def table(**throttled: list[int]) -> HostTable:
    """Edges with these bits in one report each; every edge is a host of its own."""
    found = HostTable()
    for edge, bits in throttled.items():
        found.facts(edge, replace(FACTS, host=edge, machine=edge))
        for number, each in enumerate(bits, 1):
            found.report(number * NS_PER_S, edge, replace(REPORT, throttled=each))
    return found


def waiting(edges: dict[str, tuple[int, int]], **facts: str) -> HostTable:
    """Edges of one host that ran and waited this long (us) after the run's start."""
    found = HostTable()
    for edge, (ran_us, waited_us) in edges.items():
        found.facts(edge, replace(FACTS, **facts))
        before = replace(REPORT, ran_us=7 * S_US, waited_us=9 * S_US)
        found.report(0, edge, before)
        after = replace(REPORT, ran_us=7 * S_US + ran_us, waited_us=9 * S_US + waited_us)
        found.report(NS_PER_S, edge, after)
    return found


# ------------------------------------------------------------------ words
@pytest.mark.parametrize(
    ("bits", "words"),
    [(None, ""), (0, "no"), (1, "under-voltage"), (5, "under-voltage+throttled")],
)
def test_bits_in_words(bits: int | None, words: str) -> None:
    assert throttling(bits) == words


# ------------------------------------------------------------------ energy
def metered(*reports: tuple[int, int | None]) -> tuple[HostTable, list[tuple[int, float] | None]]:
    """The table, and what each report adds; reports are (seconds, microjoules)."""
    found, added = HostTable(), []
    found.facts("a", FACTS)
    for at_s, energy_uj in reports:
        report = replace(REPORT, energy_uj=energy_uj)
        added.append(found.measured("a", report))
        found.report(at_s * NS_PER_S, "a", report)
    return found, added


def test_a_meter_counts_from_the_runs_start() -> None:
    found, added = metered((0, 5_000_000), (2, 9_000_000), (4, 9_500_000))
    assert added == [None, (0, 4.0), (2 * NS_PER_S, 0.5)]
    assert found.section()[0]["joules"] == 4.5


# ------------------------------------------------------------------ strains
def test_a_host_that_throttles_is_a_reason_for_all_devices() -> None:
    found = table(**{"pi-1": [0, 0], "pi-2": [0, 5, 4]})
    reason = "host pi-2 throttled: under-voltage in 1, throttled in 2 of 3 reports, up to 64.2 °C"
    assert found.strains([]) == found.strains(["pi-1", "pi-2"]) == [reason]


def test_thermal_events_of_a_pc_count_only_where_lateness_is_not_measured() -> None:
    found = table(pc=[16, 0])
    assert found.strains([]) == []
    assert found.strains(["pc"]) == [
        "host pc throttled: thermal event in 1 of 2 reports, up to 64.2 °C"
    ]


def test_an_overloaded_host_names_the_edges_that_waited() -> None:
    found = waiting({"a": (6 * S_US, 2 * S_US), "b": (8 * S_US, S_US), "c": (5 * S_US, 5 * S_US)})
    assert found.strains("abc") == [
        "host pi-3 is overloaded: edges a, c waited for one of its 4 cores for up to"
        " 50 % of the computing time"
    ]
    assert found.strains("b") == []
    assert found.section()[0]["waiting_share_max"] == 0.5


# ------------------------------------------------------------------ the section of summary.json
def test_edges_of_one_machine_are_one_host() -> None:
    found = HostTable()
    silent = replace(
        REPORT,
        cpu_permille=None,
        temperature_mk=None,
        throttled=None,
        sent_bytes=None,
        received_bytes=None,
        rss_bytes=500_000_000,
    )
    for edge in ("b", "a", "c"):
        found.facts(edge, replace(FACTS, machine="x" if edge < "c" else "y"))
    for number, sent_bytes in enumerate((1000, 5000, 9000)):
        hot = replace(REPORT, sent_bytes=sent_bytes, temperature_mk=337_350 + 1000 * number)
        found.report(number * NS_PER_S, "b", replace(hot, cpu_permille=100 * number))
        found.report(number * NS_PER_S, "a", silent)
    first, second = found.section()
    assert (first["host"], first["edges"], first["reports"]) == ("pi-3", ["a", "b"], 4)
    assert first["cpu_percent"] == {"mean": 15.0, "max": 20.0}
    assert first["temperature_c"] == {"first": 65.2, "max": 66.2}
    assert first["throttled"] == {} and first["rss_bytes_max"] == 500_000_000
    assert (first["sent_bytes"], first["received_bytes"]) == (8000, 0)
    assert second["edges"] == ["c"] and second["cpu_percent"] is second["throttled"] is None


def test_a_new_process_of_an_edge_counts_from_zero() -> None:
    found = waiting({"a": (10 * S_US, 0)})
    found.facts("a", FACTS)
    found.report(2 * NS_PER_S, "a", replace(REPORT, ran_us=90 * S_US))
    found.report(3 * NS_PER_S, "a", replace(REPORT, ran_us=95 * S_US))
    assert found.edges["a"].ran_us == 15 * S_US


def test_texts_of_another_machine_are_safe_to_print() -> None:
    found = HostTable()
    safe = found.facts("a", replace(FACTS, host="pi\x1b[2J\n3", model=""))
    assert safe.host == found.section()[0]["host"] == "pi\\x1b[2J 3" and safe.model == ""
