"""What a launcher knows about edges that run on other hosts and that the same command started."""

from __future__ import annotations

from typing import Protocol

from edgefl.hosts.process_messages import InjectFault


class RemoteEdges(Protocol):
    """The edges of other hosts."""

    @property
    def all_gone(self) -> bool:
        """Whether no edge can take part any more."""

    def listening(self, port: int) -> None:
        """The coordinator of the next run accepts edges at this port."""

    def inject(self, fault: InjectFault) -> None:
        """Carry out a fault of the config."""
