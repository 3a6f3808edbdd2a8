"""A recorded rate, read from a published file, and what the readers of the formats share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from emulator.errors import BadValue
from emulator.units import NS_PER_S, seconds_text


@dataclass(frozen=True, slots=True)
class Recording:
    """The steps (rate_bit_s, length_ns) of one direction, and what the reader left out or assumed.

    ``remarks`` are lines for the user.
    """

    steps: list[tuple[int, int]]
    remarks: tuple[str, ...] = ()

    def csv(self) -> str:
        """The text of a trace file ``seconds,bit_s``; its last row has no rate and ends it."""
        lines, at_ns = ["seconds,bit_s"], 0
        for rate_bit_s, length_ns in self.steps:
            lines.append(f"{seconds_text(at_ns)},{rate_bit_s}")
            at_ns += length_ns
        return "\n".join([*lines, f"{seconds_text(at_ns)},", ""])


def not_of(format_name: str, where: str, expected: str, found: str) -> BadValue:
    """The error for a line that the format does not have."""
    return BadValue(f"{where}: expected {expected} ({format_name}), found {found.strip()[:60]!r}")


def number(text: str) -> float | None:
    """A number of 0 or more; None if the text is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def moment(text: str, form: str) -> int | None:
    """The seconds of a date and time, counted from any fixed day; None if the text is none."""
    try:
        when = datetime.strptime(text.strip(), form)
    except ValueError:
        return None
    return when.toordinal() * 86400 + when.hour * 3600 + when.minute * 60 + when.second


def numbered(lines: Iterable[str], name: str) -> Iterator[tuple[str, str]]:
    """Each line that is not blank, with its place for messages."""
    for count, line in enumerate(lines, 1):
        if line.strip():
            yield f"{name}, line {count}", line


def in_order(where: str, before: float | None, now: float) -> None:
    """BadValue if the time of a row lies before that of the row above it."""
    if before is not None and now < before:
        raise BadValue(
            f"{where}: its time is {before - now:g} s before that of the row above: expected rows"
            " in order of time"
        )


def held(rows: Sequence[tuple[int, int]], name: str, longest_s: int) -> Recording:
    """Rows (second, rate_bit_s) in order of time: each rate holds until the next row.

    Rows of the same second share the time until the next second. After a pause of more than
    ``longest_s`` the last rate holds for 1 s and the rest of the pause is cut out, because nothing
    was measured in it.
    """
    if not rows:
        raise BadValue(f"{name}: empty")
    seconds = [(at_s, list(group)) for at_s, group in itertools.groupby(rows, key=lambda r: r[0])]
    steps: list[tuple[int, int]] = []
    cut_s = cuts = 0
    following = [*(at_s for at_s, _ in seconds[1:]), seconds[-1][0] + 1]
    for (at_s, group), next_s in zip(seconds, following):
        length_s = next_s - at_s
        if length_s > longest_s:
            cuts, cut_s, length_s = cuts + 1, cut_s + length_s - 1, 1
        edges = [place * length_s * NS_PER_S // len(group) for place in range(len(group) + 1)]
        steps += [
            (rate_bit_s, end - begin)
            for (_, rate_bit_s), begin, end in zip(group, edges, edges[1:])
        ]
    if not cuts:
        return Recording(steps)
    return Recording(
        steps, (f"{cuts} pauses between measurements are cut out, {cut_s / 3600:.3g} h in all",)
    )
