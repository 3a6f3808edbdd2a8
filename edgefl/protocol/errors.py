"""Errors of the wire, by who is to blame."""

from __future__ import annotations


class WireError(Exception):
    """The peer sent something malformed, oversized or out of order: its session is dropped and
    counted, the run goes on.
    """


class LimitExceeded(WireError):
    """The peer sent what no honest peer sends, not even by mistake or over a bad path: it is
    quarantined for the rest of the run.
    """


class Refused(Exception):
    """The other side will not have us (another protocol, config, layout or data); the text says
    which.
    """


class Unreachable(Refused):
    """The other side does not answer, or no more."""
