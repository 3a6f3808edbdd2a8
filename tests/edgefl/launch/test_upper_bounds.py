"""How long a run takes at most, and how many bytes its models are at most."""

from __future__ import annotations

from typing import Any

import pytest
from builders import experiment

from edgefl.launch.launch_plan import upper_bounds

LINKS = {"up_mbit_s": 1.0, "down_mbit_s": 4.0}


@pytest.mark.parametrize(
    ("sections", "wall_s", "up_bytes", "down_bytes"),
    [
        # 8 s / 2; 3 edges x 1 Mbit/s x 8 s = 3 MB up, four times as much down
        ({"speed": 2.0, "links": LINKS, "stop": {"emulated_s": 8.0}}, 4.0, 3e6, 12e6),
        # (10 updates + 3 edges at work) x 1000 bytes
        ({"links": LINKS, "stop": {"updates": 10}}, None, 13_000, 13_000),
        ({"links": LINKS, "stop": {"updates": 10, "emulated_s": 8.0}}, 8.0, 13_000, 13_000),
        ({"links": LINKS, "stop": {"versions": 10}}, None, None, None),
        ({"links": {"kind": "native"}, "stop": {"emulated_s": 8.0}}, 8.0, None, None),
        (
            {
                "links": LINKS,
                "medium": {"kind": "cell", "up_mbit_s": 2.0},
                "stop": {"emulated_s": 8.0},
            },
            *(8.0, 2e6, 12e6),
        ),
        (
            {
                "groups": (
                    {"name": "a", "count": 1, "links": {"up_mbit_s": 2.0}},
                    {"name": "b", "count": 2},
                ),
                "links": LINKS,
                "stop": {"emulated_s": 8.0},
            },
            *(8.0, 4e6, 12e6),
        ),
        # 3 edges x 7.6 and 29.5 Mbit/s x 8 s
        ({"links": {"profile": "lte"}, "stop": {"emulated_s": 8.0}}, 8.0, 22.8e6, 88.5e6),
    ],
)
def test_bounds_by_hand(
    sections: dict[str, Any], wall_s: float, up_bytes: float, down_bytes: float
) -> None:
    found = upper_bounds(experiment(edges={"count": 3}, **sections), 1000)
    assert (found.wall_s, found.up_bytes, found.down_bytes) == (wall_s, up_bytes, down_bytes)
