"""Times, rates and sizes: exact integers inside, text with a unit at the border."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache

from emulator.errors import BadValue

NS_PER_S = 1_000_000_000
FOREVER = 2**63 - 1
"""The moment (ns) that never comes; also the largest time, rate or size that is accepted."""

RATE_UNITS: Mapping[str, int] = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
DURATION_UNITS: Mapping[str, int] = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": NS_PER_S,
    "min": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
}
# Capital B only: "2Mb" can mean bits or bytes, so it is refused.
SIZE_UNITS: Mapping[str, int] = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}

_WRITTEN_SIZES = {name: SIZE_UNITS[name] for name in ("B", "kB", "MB", "GB")}
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_BITS_OR_BYTES = re.compile(
    r"((?:[kKmMgG]i?)?)(B|b|bits?|[Bb]ytes?)(?:ps|/s)?"
)  # such as MB/s, Mbps, kbits

# ASCII digits without an exponent and of bounded length, so that no text gives a huge number.
_QUANTITY = re.compile(r"([+-]?)(\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})\s*(\S*)", re.ASCII)


@lru_cache(maxsize=256)  # the rows of one event have few moments
def seconds_text(ns: int) -> str:
    """Format ``ns`` as seconds with exactly 9 decimals, by integer arithmetic.

    All files of a run use this format.
    """
    if ns < 0:
        return f"-{seconds_text(-ns)}"
    return f"{ns // NS_PER_S}.{ns % NS_PER_S:09d}"


def to_ns(seconds: float) -> int:
    """Convert seconds to ns, rounded to the nearest ns; FOREVER for all that is longer."""
    ns = seconds * NS_PER_S
    return FOREVER if ns >= FOREVER else round(ns)


def parse_rate(text: str) -> int:
    """Parse a rate such as '2mbit' or '500kbit/s' to bit/s (units of 1000, any case); above 0."""
    rate_bit_s = _parse(
        text, "rate", "2mbit", RATE_UNITS, lambda unit: unit.lower().removesuffix("/s")
    )
    if rate_bit_s == 0:
        raise BadValue(f"rate {text!r}: expected at least 1 bit/s")
    return rate_bit_s


def parse_duration(text: str) -> int:
    """Parse a duration such as '30ms' or '1.5s' to ns."""
    return _parse(text, "duration", "30ms", DURATION_UNITS, str)


def parse_size(text: str) -> int:
    """Parse a size such as '0.25MB' (units of 1000) or '256KiB' (units of 1024) to bytes."""
    return _parse(text, "size", "0.25MB", SIZE_UNITS, str)


def _parse(
    text: str, what: str, example: str, units: Mapping[str, int], canonical: Callable[[str], str]
) -> int:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise BadValue(f"{what} {text!r}: expected a number and a unit, such as {example}")
    sign, number, unit = match.groups()
    if canonical(unit) not in units:
        raise BadValue(f"{what} {text!r}: {_unit_fault(Fraction(number), unit, units)}")
    value = round(Fraction(number) * units[canonical(unit)])
    if sign == "-" and value:
        raise BadValue(f"{what} {text!r}: must not be negative")
    if value >= FOREVER:
        raise BadValue(f"{what} {text!r}: too large")
    return value


def _unit_fault(number: Fraction, unit: str, units: Mapping[str, int]) -> str:
    valid = ", ".join(units)
    if not unit:
        return f"the unit is missing (valid: {valid})"
    other = _BITS_OR_BYTES.fullmatch(unit)
    if other is not None and units in (RATE_UNITS, SIZE_UNITS):
        prefix, letter = other.groups()
        rates, count = units is RATE_UNITS, number * _PREFIXES[prefix.lower()]
        written_in = RATE_UNITS if rates else _WRITTEN_SIZES
        if_bits, if_bytes = (
            _written(count * factor / (1 if rates else 8), written_in) for factor in (1, 8)
        )
        if letter == "b":  # people write both with it, and tc means bytes
            return f"{unit!r} may be bits or bytes: expected {if_bits} or {if_bytes}"
        if rates and not letter.startswith("bit"):
            return f"is in bytes, expected bits: {if_bytes} (valid: {valid})"
        if not rates and letter.startswith("bit"):
            return f"is in bits, expected bytes: {if_bits}"
    by_lower_case = {name.lower(): name for name in units}
    near = difflib.get_close_matches(unit.lower(), by_lower_case, n=1)
    hint = f", did you mean {by_lower_case[near[0]]}?" if near else ""
    return f"unknown unit {unit!r}{hint} (valid: {valid})"


def _written(value: Fraction, units: Mapping[str, int]) -> str:
    """Write a quantity in the largest of these units of which it has at least one."""
    unit = max((name for name in units if units[name] <= value), key=units.__getitem__, default="")
    unit = unit or next(iter(units))
    return f"{float(value / units[unit]):.12g}{unit}"
