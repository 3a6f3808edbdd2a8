"""Sessions with several edge processes: their messages, and the coordinator's answers."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from edgefl.clocks.wall.coordinator.sessions import (
    WHOLE_RUN,
    Expected,
    Reply,
    SessionOutcome,
    Sessions,
)
from edgefl.protocol.codec import encode
from edgefl.protocol.messages import PROTOCOL, Hello, Join, Refuse, Setup

S = 1_000_000_000
RUN = 77  # incarnation
SETUP = Setup('{"seed": 1}', "fedavg")
EXPECTED = Expected(
    edges=frozenset({"pi-1", "pi-2"}),
    package="1.0",
    config_digest="c",
    layout_digest="l",
    data_digest="d",
    setup=SETUP,
    keyed=False,
    heartbeat_ns=1 * S,
    liveness_ns=4 * S,
    max_sessions=4,
)
HELLO = Hello("pi-1", PROTOCOL, "1.0")
JOIN = Join("c", "l", "d", 100, [], [])


class Story:
    """The coordinator's sessions, driven by messages of several edge processes.

    A process is named by its routing id; its session number is the length of that id.
    """

    def __init__(self, **changes: Any) -> None:
        self.sessions = Sessions(replace(EXPECTED, **changes), RUN)
        self.now = 100 * S

    def says(
        self,
        who: str,
        message: Any,
        body: Any = None,
        user: str | None = None,
        incarnation: int = RUN,
        number: int | None = None,
    ) -> list[SessionOutcome]:
        header = encode(message, incarnation, len(who) if number is None else number)
        return self.raw(who, header, body, user)

    def raw(
        self, who: str, header: bytes, body: Any = None, user: str | None = None
    ) -> list[SessionOutcome]:
        return self.sessions.receive(who.encode(), user, memoryview(header), body, self.now)

    def joins(self, who: str, edge: str = "pi-1", user: str | None = None) -> list[SessionOutcome]:
        self.says(who, replace(HELLO, edge=edge), user=user, incarnation=0)
        return self.says(who, JOIN, user=user)

    def after(self, seconds: float) -> list[SessionOutcome]:
        self.now += round(seconds * S)
        return self.sessions.tick(self.now)

    def count(self, sort: str, who: str = WHOLE_RUN) -> int:
        return self.sessions.counts[sort, who]


def told(who: str, message: Any, number: int | None = None) -> Reply:
    return Reply(who.encode(), len(who) if number is None else number, message)


def refusal(outcomes: list[SessionOutcome]) -> Refuse:
    """Return the only answer, which must be a Refuse."""
    (reply,) = (outcome for outcome in outcomes if isinstance(outcome, Reply))
    assert isinstance(reply, Reply) and isinstance(reply.message, Refuse), outcomes
    return reply.message
