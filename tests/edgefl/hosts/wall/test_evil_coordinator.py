"""How an edge handles a coordinator that breaks the rules.

It gets every message in every state of a session, texts for a terminal, and numbers that no
coordinator sends.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from edge_hosts import SETUP, Script, side
from trainers import linear_trainer

from edgefl.edges.training import TrainingPlan
from edgefl.hosts.wall.edge.host import EdgeHost
from edgefl.protocol.codec import encode, encode_note
from edgefl.protocol.errors import Refused
from edgefl.protocol.messages import (
    Acknowledged,
    Arrived,
    Assignment,
    CancelTask,
    Credit,
    Delivered,
    Fresh,
    FreshRequest,
    Hello,
    Join,
    NothingNewer,
    Offer,
    Piece,
    Ping,
    Pong,
    Refuse,
    RunFinished,
    Setup,
    Stamped,
    TooLate,
    Trained,
    Update,
    UrgeTask,
    Welcome,
    Working,
)
from edgefl.protocol.transfers import Outgoing

ESC = "\x1b[2J\x1b]0;owned\x07\u202egpj\x9b31m\nsecond line"
LATE = 2**62
END = RunFinished("versions", more=False)
WEIGHTS = np.arange(3, dtype=np.float32)


class Words(Script):
    """A script whose messages may have a body: (message, incarnation, body)."""

    def host(self) -> EdgeHost:
        host = super().host()
        host.build = lambda setup: side(linear_trainer(TrainingPlan(1, 2, 0.1)))
        return host

    def receive(self) -> Iterator[list[Any]]:
        if self.words:
            message, incarnation, *body = self.words.pop(0)
            header = encode(message, incarnation, self.number)
            yield [SimpleNamespace(buffer=part) for part in (header, *body)]


def sent(number: int, message: Any, at_ns: int = 5) -> list[Any]:
    """A model that is sent, and its Delivered."""
    outgoing = Outgoing(number, message)
    pieces = [(Piece(number, 0), 7, outgoing.piece(0, 1 << 20))] if outgoing.body else []
    return [(outgoing.offer(0), 7), *pieces, (Delivered(number, at_ns), 7)]


def note(message: Any, at_ns: int = 9) -> tuple[Any, int]:
    return Stamped(at_ns, encode_note(message)), 7


TASK = sent(1, Assignment(1, 0, {"weights": WEIGHTS}))
STATES: dict[str, list[Any]] = {
    "before Setup": [],
    "before Welcome": [(SETUP, 7)],
    "joined": [(SETUP, 7), (Welcome(), 7)],
    "receiving": [(SETUP, 7), (Welcome(), 7), TASK[0]],
    "training": [(SETUP, 7), (Welcome(), 7), *TASK],
}
MESSAGES: dict[str, list[Any]] = {
    "Hello": [(Hello("e000", 1, "1"), 7)],
    "Setup": [(SETUP, 7)],
    "Setup of never": [(Setup("{}", "fedavg", LATE, LATE), 7)],
    "Setup of at once": [(Setup("{}", "fedavg", 0, 0), 7)],
    "Join": [(Join("c", "l", "d", 1, [], []), 7)],
    "Welcome": [(Welcome(), 7)],
    "Refuse": [(Refuse(ESC, final=False), 7)],
    "Ping": [(Ping(LATE), 7, b"probe")],
    "Pong": [(Pong(1, 1), 7)],
    "Offer": [TASK[0]],
    "Offers": [(Outgoing(n, Assignment(n, 0, {"weights": WEIGHTS})).offer(0), 7) for n in range(9)],
    "Offer of a strange kind": [(Offer(3, ESC[:60], b"", 0, "", 0), 7)],
    "task that starts": [
        (Outgoing(2, Assignment(2, 0, {"weights": WEIGHTS})).offer(LATE, 2**40, starts=True), 7),
        (Piece(2, 0), 7, WEIGHTS.tobytes()),
    ],
    "fresh model that starts": [
        (Outgoing(2, Fresh(1, 3, {"weights": WEIGHTS})).offer(0, starts=True), 7)
    ],
    "Offer of an update": sent(3, Update(1, 0, {"weights": WEIGHTS})),
    "Offer of a bomb": [(Offer(3, "task", b"\x91" * 60_000, 0, "", 0), 7)],
    "Piece": [TASK[1]],
    "Piece without bytes": [(Piece(1, 0), 7)],
    "Piece from beyond": [(Piece(1, 2**40), 7, b"x" * 12)],
    "Credit": [(Credit(1, 0, 2**40), 7)],
    "Credit from beyond": [(Credit(1, 2**40, 2**40), 7)],
    "Arrived": [(Arrived(1, [[1, 1]]), 7)],
    "Delivered": [(Delivered(1, LATE), 7)],
    "Working": [(Working(1, 1), 7)],
    "Trained": [(Trained(1, 1, 1), 7)],
    "task": sent(2, Assignment(2, 0, {"weights": WEIGHTS})),
    "task at the end of time": sent(2, Assignment(2, 0, {"weights": WEIGHTS}), LATE),
    "task without a model": sent(2, Assignment(2, 0, {})),
    "task of another vector": sent(2, Assignment(2, 0, {"v": WEIGHTS})),
    "task without end": sent(2, Assignment(2, 0, {"weights": WEIGHTS}, {"epochs": np.inf})),
    "task of no number": sent(2, Assignment(2, 0, {"weights": WEIGHTS}, {"epochs": np.nan})),
    "fresh": sent(2, Fresh(1, 3, {"weights": WEIGHTS})),
    "fresh without a model": sent(2, Fresh(1, 3, {})),
    "note of garbage": [(Stamped(1, b"\xc1"), 7)],
    "note of a frame": [(Stamped(1, encode(Welcome(), 0, 0)), 7)],
    **{
        f"note {type(said).__name__}": [note(said), note(said, LATE)]
        for said in (
            FreshRequest(1, 0, 0),
            NothingNewer(1),
            CancelTask(1),
            UrgeTask(1),
            UrgeTask(LATE),
            TooLate(1),
            Acknowledged(1),
        )
    },
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", MESSAGES)
def test_no_message_in_any_state_is_more_than_a_line_to_an_edge(
    capsys: pytest.CaptureFixture[str], kind: str, state: str
) -> None:
    script = Words(*STATES[state], *MESSAGES[kind], (END, 7))
    assert script.host().run() == END
    lines = capsys.readouterr().err.split("\n")[:-1]
    assert all(line.startswith("e000: ") and line.isprintable() for line in lines)
    assert all(line.endswith("; a new session begins") for line in lines)


@pytest.mark.parametrize("message", [Offer(1, "task", b"", 0, "", 0), Credit(1, 0, 9)])
def test_a_transfer_before_the_setup_is_a_protocol_error(
    capsys: pytest.CaptureFixture[str], message: Any
) -> None:
    Words((message, 7), (END, 7)).host().run()
    kind = type(message).__name__
    assert capsys.readouterr().err == (
        f"e000: protocol error: {kind} from the coordinator in place of Setup; a new session"
        " begins\n"
    )


def test_a_refusal_cannot_write_on_the_terminal() -> None:
    with pytest.raises(Refused) as refused:
        Words((Refuse(ESC + "x" * 1000, final=True), 7)).host().run()
    text = str(refused.value)
    assert text.isprintable() and text.startswith(
        "\\x1b[2J\\x1b]0;owned\\x07\\u202egpj\\x9b31m sec"
    )
    assert len(text) == 500
