"""From stamps of arrivals to stretches of time with the bytes that came in each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Stretch = tuple[int, int, int]  # begin and end (emulated ns), and bytes that arrived in between

LEAST_NS = 100_000_000  # a shorter time would show the pieces and not the link
MOST_STRETCHES = 64  # of one transfer


def stretches(stamps: Sequence[tuple[int, int]]) -> list[Stretch]:
    """Combine stamps (bytes so far, moment) of one receiver to stretches of LEAST_NS or longer.

    What had arrived by the first stamp does not count: it is not known since when. A long transfer
    has at most MOST_STRETCHES, a short one is one stretch. Empty if no time passed, or if the
    stamps are not in order: an edge on another machine has sent them.
    """
    if len(stamps) < 2 or stamps[-1][1] <= stamps[0][1]:
        return []
    if any(after[0] < before[0] or after[1] < before[1] for before, after in pairwise(stamps)):
        return []
    (got, began_ns), (whole, ended_ns) = stamps[0], stamps[-1]
    least_ns = max(LEAST_NS, -(-(ended_ns - began_ns) // MOST_STRETCHES))
    found: list[Stretch] = []
    for so_far, at_ns in stamps[1:-1]:
        # not if the rest would be too short for a stretch of its own
        if at_ns - began_ns >= least_ns and ended_ns - at_ns >= least_ns:
            found.append((began_ns, at_ns, so_far - got))
            got, began_ns = so_far, at_ns
    return [*found, (began_ns, ended_ns, whole - got)]
