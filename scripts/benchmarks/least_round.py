"""The least that a checked round needs in Python, to compare edgefl and raw ZeroMQ with.

As in ``reference.raw_rounds``, but each message has a header that is decoded with all its limits,
both sides check the digest and copy the model to aligned memory, and the server looks for numbers
that are not finite, writes a row and averages. It has no sessions, credits, strategies or times.
"""

from __future__ import annotations

import time
from multiprocessing.connection import Connection

import numpy as np
import orjson
import zmq
from reference import LOCAL, RawRounds, end_rounds, raw_rounds, socket_of

from edgefl.protocol.codec import decode, encode
from edgefl.protocol.messages import MAX_PIECE_BYTES, TASK, UPDATE, Offer
from edgefl.protocol.transfers import body_digest
from edgefl.vectors import aligned_copy, is_finite, weighted_sum

META = bytes(30)


def least_rounds(edges: int, size: int, rounds: int) -> RawRounds:
    """Measure rounds of ``size`` bytes each way, each in one message."""
    return raw_rounds(edges, size, rounds, ends=(_serve, _echo))


def _header(number: int, kind: str, body: np.ndarray) -> bytes:
    digest = body_digest([body.view(np.uint8)])
    return encode(Offer(number, kind, META, body.nbytes, digest, 0), 1, 2)


def _received(parts: list[zmq.Frame]) -> tuple[Offer, np.ndarray]:
    """The header and the model of a message; ValueError if the digest is another one."""
    offer, body = decode(parts[0].buffer)[0], np.frombuffer(parts[1].buffer, np.uint8)
    if body_digest([body]) != offer.digest:
        raise ValueError("a model does not match its digest")
    return offer, aligned_copy(body.view(np.float32))


def _serve(pipe: Connection, edges: int, size: int, pieces: int, rounds: int) -> None:
    sock = socket_of(zmq.ROUTER)
    pipe.send(sock.bind_to_random_port(f"tcp://{LOCAL}"))
    names = [sock.recv_multipart()[0] for _ in range(edges)]
    model, seconds, rows, used_s = np.zeros(size // 4, np.float32), [], [], 0.0
    for number in range(rounds + 1):
        if number == 1:  # the first round is the warm-up
            used_s = time.process_time()
        began_s = time.perf_counter()
        header, updates = _header(number, TASK, model), []
        body = zmq.Frame(model.data.cast("B"), copy=size <= MAX_PIECE_BYTES)
        for name in names:
            sock.send_multipart([name, header, body], copy=False)
        for _ in names:
            routing, *parts = sock.recv_multipart(copy=False)
            offer, update = _received(parts)
            if not is_finite(update):
                raise ValueError("an update is not finite")
            rows.append(orjson.dumps({"edge": routing.bytes.hex(), "task": offer.transfer}))
            updates.append(update)
        model = weighted_sum(updates, [1 / edges] * edges)
        seconds.append(time.perf_counter() - began_s)
    end_rounds(sock, pipe, names, seconds, time.process_time() - used_s)


def _echo(port: int) -> None:
    sock = socket_of(zmq.DEALER)
    sock.connect(f"tcp://{LOCAL}:{port}")
    sock.send(b"hello")
    while len((parts := sock.recv_multipart(copy=False))[0]):
        offer, model = _received(parts)
        header = _header(offer.transfer, UPDATE, model)
        sock.send_multipart([header, model.data.cast("B")], copy=model.nbytes <= MAX_PIECE_BYTES)
