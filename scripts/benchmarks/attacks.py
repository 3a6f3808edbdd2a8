"""Attacks by an admitted edge that becomes malicious, and by strangers who never join.

A malicious edge joins and works like an honest one for a while, then attacks the coordinator. It
uses its own socket code, not the edge host's. Strangers only open TCP connections.
"""

from __future__ import annotations

import os
import random
import selectors
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn
from zlib import crc32

import msgpack
import numpy as np
import zmq

from edgefl import __version__
from edgefl.clocks.wall.edge.transfers import EdgeTransfers
from edgefl.clocks.wall.keys import EdgeKeys, secure_edge
from edgefl.protocol.codec import decode, decode_note, encode, encode_note, unbundled
from edgefl.protocol.messages import (
    MAX_PAIRS,
    PROTOCOL,
    Acknowledged,
    Arrived,
    CancelTask,
    Credit,
    Delivered,
    FreshRequest,
    Hello,
    Join,
    Offer,
    Piece,
    Ping,
    Pong,
    Refuse,
    Setup,
    Stamped,
    Update,
    Welcome,
    WireError,
)

SAMPLES = 10  # reported number of samples
HEARTBEAT_S = 0.2
JOINING_S = 5.0  # time to wait for the admission
BURST = 50  # frames per burst
BOMB = b"\xdc\x3f\xff" * 5_700  # 17 KB: nested lists of 16,383 items each
FAR_NS = 10**15  # emulated, eleven days ahead
HONEST_TASKS = 3  # tasks before the attack
PAUSE_S = 0.002  # pause of an edge that is not admitted


def marked(edge: str, task: int, size: int) -> np.ndarray:
    """Return an honest edge's update, which edge and task determine, so that it can be checked."""
    return np.full(size, crc32(f"{edge} {task}".encode()) % (1 << 24), np.float32)


@dataclass(slots=True)
class EvilEdge:
    """An edge without a host.

    ``tell(edge, task, size)`` returns the vector that it reports; ``samples`` is the number of
    samples that it reports. ``done``: tasks whose updates were acknowledged; ``refusals``: reasons
    that the coordinator gave.
    """

    name: str
    port: int
    size: int
    digests: tuple[str, str, str]
    keys: EdgeKeys | None = None
    context: zmq.Context = field(default_factory=zmq.Context)
    tasks: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    samples: float = float(SAMPLES)
    joined: bool = False
    incarnation: int = 0
    number: int = 0
    tell: Callable[[str, int, int], np.ndarray] = marked
    transfers: EdgeTransfers = field(default_factory=lambda: EdgeTransfers(1 << 24))
    socket: Any = None
    _spoke_s: float = 0.0
    _updates: dict[int, Update] = field(default_factory=dict)

    # ------------------------------------------------------------------ sessions
    def connect(self, claimed: str | None = None) -> None:
        """Open a new socket and a new session, as the edge ``claimed``."""
        if self.socket is not None:
            self.socket.close()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        if self.keys is not None:
            secure_edge(self.socket, self.keys)
        self.socket.connect(f"tcp://127.0.0.1:{self.port}")
        self.number, self.joined = random.SystemRandom().getrandbits(60), False
        self.say(Hello(claimed or self.name, PROTOCOL, __version__))

    def join(self) -> bool:
        """Connect and listen until the coordinator admits the edge; False if it does not."""
        self.connect()
        until_s, before = time.monotonic() + JOINING_S, len(self.refusals)
        while not self.joined and len(self.refusals) == before and time.monotonic() < until_s:
            self.socket.poll(20)
            self.listen()
        return self.joined

    def say(self, message: Any, body: Any = None) -> bool:
        header = encode(message, self.incarnation, self.number)
        return self.raw(header) if body is None else self.raw(header, bytes(body))

    def raw(self, *frames: bytes) -> bool:
        """Send the frames; return False if the socket is full."""
        self._spoke_s = time.monotonic()
        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK)
            return True
        except zmq.Again:
            return False

    # ------------------------------------------------------------------ as an honest edge
    def listen(self) -> None:
        """Handle all messages that have arrived, and send a sign of life."""
        with suppress(zmq.Again, WireError):
            while True:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
                *others, last = unbundled(memoryview(frames[0]))
                for header in others:
                    self._header(header, None)
                self._header(last, frames[1] if len(frames) > 1 else None)
        self.live()

    def _header(self, header: memoryview, body: bytes | None) -> None:
        message, incarnation, number = decode(header)
        if number == self.number:
            self.incarnation = incarnation
            self._frame(message, body)

    def live(self) -> None:
        if self.joined and time.monotonic() - self._spoke_s > HEARTBEAT_S:
            self.say(Pong(0, time.monotonic_ns()))

    def _frame(self, message: Any, body: bytes | None) -> None:
        now_ns, answer = time.monotonic_ns(), None
        match message:
            case Ping():
                self.say(Pong(message.sent_ns, now_ns), body)
            case Setup():
                held = self.transfers.held
                self.transfers.new_session()
                self.say(
                    Join(*self.digests, SAMPLES, [*self._updates, *self.transfers.tasks], held)
                )
            case Welcome():
                self.joined = True
                for outgoing, due_ns in self.transfers.unacknowledged(self._updates):
                    self.say(outgoing.offer(due_ns))
            case Refuse():
                self.refusals.append(message.reason)
                self.joined = False
            case Offer():
                answer = self.transfers.offered(message, now_ns)
            case Piece() if body is not None:
                answer = self.transfers.piece(message, memoryview(body), now_ns)
            case Credit():
                for piece, view in self.transfers.credit(message):
                    self.say(piece, view)
            case Delivered():
                self._work(self.transfers.delivered(message.transfer), message.at_ns)
            case Stamped():
                self._note(decode_note(message.note))
        if answer is not None:
            self.say(answer)
            started = self.transfers.started(answer.transfer)
            if started is not None:
                self._work(*started)

    def _work(self, task: Any, at_ns: int) -> None:
        if task is None:
            return
        self.tasks.append(task.number)
        vectors = {"weights": self.tell(self.name, task.number, self.size)}
        update = Update(task.number, task.version, vectors, {"samples": self.samples})
        self._updates[task.number] = update
        self.say(self.transfers.new(update, at_ns).offer(at_ns))

    def _note(self, note: Any) -> None:
        if isinstance(note, Acknowledged | CancelTask):
            self._updates.pop(note.task, None)
            self.transfers.acknowledged(note.task)
            self.transfers.cancelled(note.task)
            self.done.append(note.task)


# ------------------------------------------------------------------ attacks
Step = Callable[[EvilEdge, int], Any]  # a burst of an attack; the int counts the frames so far


def _fat_offer(number: int, task: int, size: int, due_ns: int) -> Offer:
    """Return the largest possible offer: 64 numbers with names of 64 letters."""
    numbers = {f"{key:064d}": 1.0 for key in range(63)} | {"samples": 1.0}
    meta = msgpack.packb([task, 0, [["weights", size]], numbers])
    return Offer(number, "update", meta, 4 * size, f"{number:048d}", due_ns)


def offers(edge: EvilEdge, count: int) -> None:
    """Send offers of its own task, each with another number and due far in the future."""
    task = edge.tasks[-1] if edge.tasks else 0
    edge.say(_fat_offer(1_000 + count, task, edge.size, FAR_NS + count))


def requests(edge: EvilEdge, count: int) -> None:
    """Request a fresher model for its own task, each due far in the future."""
    task = edge.tasks[-1] if edge.tasks else 0
    note = FreshRequest(task, 0, 1 + count, 2 * FAR_NS)
    edge.say(Stamped(FAR_NS + count, encode_note(note)))


def others_tasks(edge: EvilEdge, count: int) -> None:
    """Send offers and requests for tasks of other edges, or for tasks that do not exist."""
    task = count % 1_000
    edge.say(_fat_offer(1_000 + count, task, edge.size, 0))
    edge.say(Stamped(0, encode_note(FreshRequest(task, 0, 1))))


def bombs(edge: EvilEdge, count: int) -> None:
    edge.raw(b"\x94\x0c\x00\x00" + BOMB)


def garbage(edge: EvilEdge, count: int) -> None:
    """Send random bytes as headers, and as bodies of valid headers."""
    noise = os.urandom(random.randrange(1, 1 << 16))
    if count % 2:
        edge.raw(noise)
    else:
        edge.raw(encode(Piece(count, 0), edge.incarnation, edge.number), noise)


def rejoins(edge: EvilEdge, count: int) -> None:
    """Open new sessions as fast as possible."""
    edge.join()


def another_id(edge: EvilEdge, count: int) -> None:
    """Send a Hello as another edge, with its own key."""
    edge.connect("good-0")
    edge.socket.poll(50)


def replays(edge: EvilEdge, count: int) -> None:
    """Send frames of an older session, and updates that were acknowledged before."""
    task = edge.done[count % len(edge.done)] if edge.done else 0
    edge.say(_fat_offer(1_000 + count, task, edge.size, 0))
    edge.raw(encode(Pong(0, 1), edge.incarnation, edge.number - 1))


def arrivals(edge: EvilEdge, count: int) -> None:
    """Report the arrival of models that were never sent, in as many parts as possible."""
    curve = [[number, number] for number in range(1, MAX_PAIRS)]
    edge.say(Arrived(1_000_000 + count, curve))


def repeated_pieces(edge: EvilEdge, count: int) -> None:
    """Send bytes of an update that has arrived before."""
    edge.say(Piece(1, 0), bytes(1 << 15))


def nothing(edge: EvilEdge, count: int) -> None:
    """Behave like an honest edge."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of attack.

    ``burst``: steps per burst; ``listens``: whether it reads messages; ``named``: pattern of the
    fact about the edge that must be on record afterwards.
    """

    step: Step = nothing
    burst: int = BURST
    listens: bool = True
    named: str = ""
    tell: Callable[[str, int, int], np.ndarray] = marked
    samples: float = float(SAMPLES)
    keyed: bool = False


def _nan(edge: str, task: int, size: int) -> np.ndarray:
    return np.full(size, np.nan, np.float32)


ATTACKS = {
    "offers": Attack(offers, named="quarantined: more than .* offers of task"),
    "requests": Attack(requests, named="quarantined: more than .* notes of task"),
    "other tasks": Attack(others_tasks, named="wire_error: task .* is none of those"),
    "bombs": Attack(bombs, burst=5, named="quarantined: .* bytes, at most"),
    "deaf": Attack(burst=0, listens=False, named="session_ended: it answers no ping"),
    "rejoins": Attack(rejoins, burst=1, named="quarantined: more than .* sessions"),
    "garbage": Attack(garbage, burst=10, named="quarantined: "),
    "nan": Attack(burst=0, tell=_nan, named="discarded: not finite"),
    "samples": Attack(burst=0, samples=1e308, named="capped"),
    "another id": Attack(
        another_id, burst=1, keyed=True, named="quarantined: more than .* Hellos as another edge"
    ),
    "replays": Attack(replays, named="quarantined: "),
    "arrivals": Attack(arrivals, burst=2, named="quarantined: .* useless|useless_messages: "),
    "pieces": Attack(repeated_pieces, burst=2, named="quarantined: .* useless|useless_messages: "),
}


def attack(edge: EvilEdge, what: Attack, begin_s: float) -> NoReturn:
    """Work like an honest edge until ``begin_s`` (monotonic) and for a few tasks, then attack.

    Like an honest edge, it joins again when its session ends, as a busy machine can make it do.
    """
    while time.monotonic() < begin_s or len(edge.done) < HONEST_TASKS:
        if not edge.joined:
            edge.join()
        edge.socket.poll(5)
        edge.listen()
    edge.tell, edge.samples, count = what.tell, what.samples, 0
    while True:
        if not what.burst:
            edge.socket.poll(5 if what.listens else 0)
        if what.listens:
            edge.listen()
        else:
            time.sleep(PAUSE_S)
            edge.live()
        if not edge.joined and what.step is not another_id:
            time.sleep(PAUSE_S)
            edge.join()
        for _ in range(what.burst):
            what.step(edge, count)
            count += 1
        time.sleep(PAUSE_S / 4)


# ------------------------------------------------------------------ strangers
MIB = 1 << 20
MOST_SENT = 1 << 16  # bytes per call
CONNECTED_PER_TURN = 100  # so that those that are connected also get their turn
GREETING = struct.Struct(">10sBB20s32x")  # ZMTP 3.0: signature, version, mechanism
SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
MORE, LARGE, COMMAND = 1, 2, 4  # flags of a frame


def _opening(keyed: bool) -> bytes:
    """Return the first bytes of a connection, up to a message of 1 MiB of which nothing follows.

    With keys, the message is a command of the handshake, which no key protects.
    """
    greeting = GREETING.pack(SIGNATURE, 3, 0, b"CURVE" if keyed else b"NULL")
    if keyed:
        return greeting + struct.pack(">BQ", COMMAND | LARGE, MIB)
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    return greeting + bytes([COMMAND, len(ready)]) + ready + struct.pack(">BQ", MORE | LARGE, MIB)


def silent(keyed: bool) -> bytes:
    """Connect, and say nothing."""
    return b""


def half_message(keyed: bool) -> bytes:
    """Send a message of 1 MiB without its last KiB."""
    return _opening(keyed) + bytes(MIB - 1024)


STRANGERS: dict[str, Callable[[bool], bytes]] = {"silent": silent, "half messages": half_message}


def strangers(port: int, count: int, what: bytes, begin_s: float, again: bool) -> NoReturn:
    """Keep ``count`` connections, each of which sends ``what``, from ``begin_s`` (monotonic) on.

    ``again``: connect again when one is closed.
    """
    time.sleep(max(begin_s - time.monotonic(), 0))
    selector, left, opened = selectors.DefaultSelector(), memoryview(what), 0
    while True:
        for _ in range(CONNECTED_PER_TURN):
            if (len(selector.get_map()) if again else opened) >= count:
                break
            peer = socket.socket()
            peer.setblocking(False)
            peer.connect_ex(("127.0.0.1", port))
            selector.register(peer, selectors.EVENT_READ | selectors.EVENT_WRITE, [left])
            opened += 1
        for key, events in selector.select(0.01):
            if not _go_on(selector, key, events):
                selector.unregister(key.fileobj)
                key.fileobj.close()


def _go_on(selector: selectors.BaseSelector, key: selectors.SelectorKey, events: int) -> bool:
    """Send and receive what is possible; False if the connection is closed."""
    try:
        if events & selectors.EVENT_READ and not key.fileobj.recv(MOST_SENT):
            return False
        if events & selectors.EVENT_WRITE:
            rest = key.data[0]
            key.data[0] = rest[key.fileobj.send(rest[:MOST_SENT]) :]
            if not key.data[0]:
                selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
    except OSError:
        return False
    return True
