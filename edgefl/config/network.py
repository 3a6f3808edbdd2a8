"""The keys of [network]: sockets, timers and reports."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from edgefl.config.section import Section
from emulator.units import to_ns

SHORTEST_REPORT_S = 2.0


class NetworkSection(Section):
    """Sockets and timers.

    Timers count wall-clock seconds, except `grace_s` and `task_timeout_s`: these count emulated
    seconds, because they are part of the experiment.
    """

    host: str = "127.0.0.1"
    """Address on which the coordinator listens, of IPv4 or IPv6 (`"::1"`). `"0.0.0.0"`: all of
    IPv4, `"::"`: all of both. An address other than loopback needs `--keys DIR` or `--insecure`.
    """
    port: int = Field(0, ge=0, le=65535)
    """TCP port of the coordinator; 0: any free port."""
    join_timeout_s: float = Field(60.0, gt=0)
    """Wall-clock seconds to wait for edges. The run starts when all edges have joined, or after
    this time with those that have joined.
    """
    heartbeat_s: float = Field(0.5, gt=0)
    """Wall-clock seconds between two heartbeats."""
    liveness_s: float = Field(4.0, gt=0)
    """Wall-clock seconds without a message after which an edge is lost; at least 3 x `heartbeat_s`.
    An edge that does not answer pings is lost two heartbeats later, even if it sends other
    messages.
    """
    grace_s: float = Field(10.0, ge=0)
    """Emulated seconds for which the task of a lost edge stays open, so that the edge can rejoin.
    """
    task_timeout_s: float | None = Field(None, ge=0)
    """Emulated seconds that the download, training and upload of a task may take together. After
    this time, the task is closed and its edge is free. Waiting for a grant, for slots or for a
    newer model does not count. 0: no limit. Default: each of the three phases has its own limit, 3
    x its emulated time and at least `liveness_s` longer. The emulated time of a transfer is that of
    the link alone, times the number of edges that share it. Native devices and links have no
    default limit.
    """
    window_ms: float = Field(50.0, gt=0)
    """How far the sent bytes may be ahead of the emulated link, in addition to the round trip: the
    bytes that the link carries in this many wall-clock ms.
    """
    piece_ms: float = Field(20.0, gt=0)
    """Size of a piece of a transfer on the wire: the bytes that the link carries in this many
    wall-clock ms. While 32 or more emulated transfers are under way, pieces are longer: by this
    length for each further 32, up to 3.8 x `window_ms`. A long piece's last byte is early by at
    most the window, and its first byte late by at most 2.8 x `window_ms`; the end of a transfer is
    never later for that.
    """
    max_edges: int = Field(100_000, ge=1)
    """Largest number of connected edges; further ones are refused. At least the number of edges."""
    realtime: Literal["auto", "off"] = "auto"
    """Real-time priority (SCHED_FIFO) of the coordinator's threads and its sockets. `"auto"`:
    used where the system allows it. `"off"`: not used. Processes that they start have normal
    priority.
    """

    report_s: float = Field(2.0, ge=0)
    """Wall-clock seconds between two reports of an edge about its host (processor, temperature,
    throttling, memory, bytes of its network interface), for `hosts.csv`, the live display and the
    verdict: at least 2. 0: no reports.
    """

    @model_validator(mode="after")
    def _reports_are_rare(self) -> NetworkSection:
        if 0 < self.report_s < SHORTEST_REPORT_S:
            raise ValueError(
                f"report_s: expected 0 or at least {SHORTEST_REPORT_S:g}, found {self.report_s:g}"
            )
        return self

    @model_validator(mode="after")
    def _a_heartbeat_may_be_late(self) -> NetworkSection:
        if to_ns(self.liveness_s) < 3 * to_ns(self.heartbeat_s):  # in ns, because 3 * 0.1 > 0.3
            raise ValueError(
                f"liveness_s: expected at least 3 times heartbeat_s ({3 * self.heartbeat_s:g}),"
                f" found {self.liveness_s:g}"
            )
        return self
