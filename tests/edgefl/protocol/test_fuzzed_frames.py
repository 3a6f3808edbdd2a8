"""Frames that no honest peer sends raise nothing but wire errors."""

from __future__ import annotations

import random
from collections import Counter

import msgpack
import pytest

from edgefl.protocol import messages as m
from edgefl.protocol.codec import (
    SMALL,
    bundle,
    decode,
    decode_note,
    encode,
    head,
    transfer_meta,
    unbundled,
)
from edgefl.protocol.messages import WireError

HONEST = [
    m.Hello("pi-1", 8, "1.0"),
    m.Setup('{"seed": 1}', "fedasync", run_id="a"),
    m.Join("c", "l", "d", 10, [1, 2], [[3, 40_000], [5, 7]]),
    m.Pong(10**18, 10**18),
    m.Offer(7, "update", msgpack.packb([1, 2, [["weights", 3]], {"loss": 0.5}]), 12, "d" * 48, 9),
    m.Piece(7, 1 << 20),
    m.Arrived(7, [[0, 10**15], [40_000, 10**15 + 1]]),
    m.Stamped(5, encode(m.FreshRequest(1, 2, 3), 0, 0)),
    m.HostReport(500, 320_000, 0, 10**9, 10**9, 900, 10**8, None, None),
    m.TaskFailed(1, "step 1 of 2: ValueError", "Traceback"),
]
BOMBS = (b"\x91", b"\x9f", b"\xdc\x40\x00", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff")


def anything(rng: random.Random, depth: int = 0) -> object:
    """A value of any type that msgpack has, also nested."""
    choice = rng.randrange(9 if depth < 4 else 7)
    if choice == 7:
        return [anything(rng, depth + 1) for _ in range(rng.randrange(20))]
    if choice == 8:
        return {str(key): anything(rng, depth + 1) for key in range(rng.randrange(4))}
    values = (None, True, rng.uniform(-9, 9), rng.getrandbits(64), -rng.getrandbits(63))
    return (*values, "x" * rng.randrange(70), rng.randbytes(rng.randrange(70)))[choice]


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Some bytes changed, and the end perhaps cut off or longer."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        changed[rng.randrange(len(changed))] = rng.getrandbits(8)
    return bytes(changed[: rng.randrange(1, len(changed) + 1)]) + rng.randbytes(rng.choice((0, 3)))


def frame(rng: random.Random) -> bytes:
    honest = encode(rng.choice(HONEST), rng.getrandbits(32), rng.getrandbits(60))
    match rng.randrange(6):
        case 0:
            return rng.randbytes(rng.randrange(200))
        case 1:
            row = [
                rng.randrange(len(SMALL)),
                1,
                2,
                *(anything(rng) for _ in range(rng.randrange(8))),
            ]
            return bytes(msgpack.packb(row))
        case 2:
            beginning = bytes((0x95, rng.randrange(len(SMALL)), 1, 1))
            return beginning + rng.choice(BOMBS) * rng.randrange(3000)
        case 3:
            return damaged(rng, bundle([honest, honest]))
        case _:
            return damaged(rng, honest)


@pytest.mark.parametrize("frames", [10_000, pytest.param(275_000, marks=pytest.mark.rest)])
@pytest.mark.slow
def test_fuzzed_frames_raise_nothing_but_wire_errors(frames: int) -> None:
    rng, outcomes = random.Random(frames), Counter[str]()
    for _ in range(frames):
        data = frame(rng)
        for reader in (head, decode, decode_note, transfer_meta):
            try:
                for header in unbundled(memoryview(data)):
                    reader(header)
                outcomes["read"] += 1
            except WireError as error:
                outcomes[type(error).__name__] += 1
                outcomes["lines"] += str(error).count("\n")
    assert outcomes["lines"] == 0, "each reason is one line"
    # the fuzz reaches all ends: most frames are damaged, some beyond limits, and some still whole
    assert min(outcomes[end] for end in ("read", "WireError", "LimitExceeded")) > frames // 50
