"""Inputs of the logic thread as rows of the journal: JSON and arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import convert, to_builtins
from msgspec.structs import asdict

from edgefl.clocks.wall.coordinator import thread_messages as messages
from edgefl.clocks.wall.coordinator.run_logic import JobOrder
from edgefl.clocks.wall.coordinator.workers import numbers, texts
from edgefl.protocol.messages import (
    FreshRequest,
    HostFacts,
    HostReport,
    Joined,
    Offer,
    Ready,
    Started,
    TaskFailed,
)
from edgefl.protocol.transfers import Incoming
from edgefl.strategies.base.events_and_decisions import EdgeLost
from emulator.fidelity import Fidelity

Row = dict[str, Any]
Arrays = Mapping[str, np.ndarray]

# classes of messages that a row names, by their names
SAID: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Joined, Started, Ready, FreshRequest, TaskFailed, EdgeLost),
        *(HostFacts, HostReport),
    )
}


def row(item: Any) -> tuple[Row, Arrays]:
    """Return an input as JSON for orjson, and its arrays by name."""
    values = {"kind": type(item).__name__, **asdict(item)}
    match item:
        case messages.Heard() | messages.HostSaid():
            values["message"] = [type(item.message).__name__, to_builtins(item.message)]
        case messages.Whole():
            incoming = values.pop("incoming")
            offer = asdict(incoming.offer) | {"meta": incoming.offer.meta.hex()}
            body = np.empty(0, np.uint8) if incoming.body is None else incoming.body
            return {**values, "most_bytes": incoming.most_bytes, "offer": offer}, {"body": body}
        case messages.Carried():
            values["completion"] = to_builtins(item.completion)
        case messages.Evaluated():
            values["result"] = texts(item.result)
        case messages.Worked():
            return _worked(values, item)
        case messages.Judged():
            values["fidelity"] = item.fidelity.counts()
    return values, {}


def _worked(values: Row, item: messages.Worked) -> tuple[Row, Arrays]:
    """The row of a job's end. An error ends the run, so it never gets here."""
    values["order"] = item.order.number
    if isinstance(item.result, str):
        return values, {}
    vectors, numbers = item.result
    # a whole number stays one; as text, because JSON has no nan
    named = {name: n if isinstance(n, int) else repr(float(n)) for name, n in numbers.items()}
    return {**values, "result": named}, vectors


def item(given: Row, arrays: Arrays, orders: Mapping[int, JobOrder]) -> Any:
    """Return the input of a row. ``orders``: open jobs by their numbers."""
    values = dict(given)
    kind = values.pop("kind")
    match kind:
        case "Heard" | "HostSaid":
            name, said = values["message"]
            values["message"] = convert(said, SAID[name])
        case "Whole":
            return messages.Whole(values["now"], values["edge"], _incoming(values, arrays["body"]))
        case "Carried" | "Measured":
            return convert(values, getattr(messages, kind))
        case "Judged":
            counts, values["fidelity"] = values["fidelity"], Fidelity()
            values["fidelity"].take_counts(counts)
        case "Evaluated":
            values["result"] = numbers(values["result"])
        case "Worked":
            values["order"] = orders[values["order"]]
            if not isinstance(values["result"], str):
                named = values["result"].items()
                found = {name: float(n) if isinstance(n, str) else n for name, n in named}
                values["result"] = dict(arrays), found
    return getattr(messages, kind)(**values)


def _incoming(values: Row, body: np.ndarray) -> Incoming:
    offer = Offer(**{**values["offer"], "meta": bytes.fromhex(values["offer"]["meta"])})
    incoming = Incoming(offer, values["most_bytes"], offer.size)
    incoming.body = body if body.size else None
    return incoming
