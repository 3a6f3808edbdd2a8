"""Errors of the protocol, by their cause."""

from __future__ import annotations


class WireError(Exception):
    """The peer sent something malformed, too large or out of order.

    Its session is dropped and counted; the run continues.
    """


class LimitExceeded(WireError):
    """The peer sent what no honest peer sends, not even by mistake or over a bad path.

    It is quarantined for the rest of the run.
    """


class Refused(Exception):
    """The other side refuses us: another protocol, config, layout or data; the text says which."""


class Unreachable(Refused):
    """The other side does not answer, or has stopped answering."""
