"""Errors of the wire, by who is to blame."""

from __future__ import annotations


class WireError(Exception):
    """The peer sent something malformed, oversized or out of order: its session is dropped and
    counted, the run goes on.
    """


class Refused(Exception):
    """The other side will not have us (another protocol, config, layout or data); the text says
    which.
    """
