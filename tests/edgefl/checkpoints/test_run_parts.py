"""Parts of a run that a checkpoint holds go on as if they had never been saved."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from builders import S, experiment
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefl.checkpoints.codec import Encoded, decode, encode
from edgefl.clocks.setup.network import network
from emulator.fidelity import Fidelity, Thresholds
from emulator.links.network import Transfer
from emulator.units import FOREVER


def back(root: object) -> Any:
    encoded = encode(root)
    return decode(Encoded(orjson.loads(orjson.dumps(encoded.tree)), encoded.arrays))


def test_a_verdict_goes_on() -> None:
    def first(fidelity: Fidelity) -> None:
        fidelity.strain("the clock jumped")
        fidelity.stall(3 * S, 2 * S)
        fidelity.slow_path("a", 5, 10)
        fidelity.task(2 * S, S)

    def second(fidelity: Fidelity) -> None:
        for late_ns in (0, 10**7, 10**9):
            fidelity.transfer(late_ns, S)
            fidelity.wake(late_ns)
            fidelity.handle(late_ns)
            fidelity.lead(late_ns)
        fidelity.strain("the clock jumped")
        fidelity.slow_path("a", 4, 10)

    whole, part = Fidelity(Thresholds(1.0), {"cpu": "x"}), Fidelity(Thresholds(1.0), {"cpu": "x"})
    first(whole), second(whole), first(part)
    part = back(part)
    second(part)
    assert part.summary() == whole.summary() and part.verdict == "strained"


RATES = {"up_mbit_s": 0.08, "down_mbit_s": 0.32, "latency_ms": 10.0}
MEDIA: dict[str, dict[str, Any]] = {
    "own links": {"links": RATES},
    "cuts": {
        "links": RATES,
        "faults": [
            {"kind": "cut", "edges": "all", "every_s": 3.0, "for_s": 1.0, "for_random": True}
        ],
    },
    "a bottleneck": {
        "links": RATES | {"jitter_ms": 5.0},
        "medium": {"kind": "bottleneck", "up_mbit_s": 0.1, "down_mbit_s": 0.2},
    },
    "frames": {
        "medium": {
            "kind": "tdma",
            "slot_ms": 50.0,
            "guard_ms": 5.0,
            "rate_mbit_s": 0.5,
            "frame_slots": 7,
        }
    },
}
OFFERS = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from(["up", "down"]),
    st.integers(1, 60_000),  # bytes
    st.integers(0, 3 * S),  # after the offer before
    st.booleans(),  # whether the oldest transfer is cancelled then
)


def carried(found: Any, offers: list[Any], saved: bool) -> list[tuple[int, int]]:
    """Offer the transfers; return (number, due) of the completions in order."""
    now, done, moving = 0, [], {}

    def settle(until_ns: int) -> None:
        while found.next_due() <= until_ns:
            for completion in found.pop_due(found.next_due()):
                done.append((completion.transfer.number, completion.due_ns))
                del moving[completion.transfer.number]

    for number, (edge, direction, size, after_ns, cancels) in enumerate(offers):
        now += after_ns
        settle(now)
        if cancels and moving:
            found.cancel(moving.pop(min(moving)), now)
        moving[number] = Transfer(number, edge, direction, size, "task")
        found.offer(moving[number], now)
        if saved:
            found, moving = back((found, moving))
    settle(FOREVER - 1)
    return done


@pytest.mark.parametrize("name", MEDIA)
@settings(max_examples=15)
@given(st.lists(OFFERS, min_size=1, max_size=12))
@pytest.mark.slow
def test_a_network_carries_what_it_would_have(name: str, offers: list[Any]) -> None:
    given = experiment(**MEDIA[name])
    whole, parts = (carried(network(given, None), offers, saved) for saved in (False, True))
    assert whole == parts
    assert len(whole) >= len(offers) - sum(offer[-1] for offer in offers)
