"""Inputs of the logic thread as rows of the journal: JSON and arrays, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from edgefl.hosts.wall.coordinator import thread_messages as messages
from edgefl.hosts.wall.coordinator.evaluator import numbers, texts
from edgefl.hosts.wall.coordinator.job_table import JobOrder
from edgefl.hosts.wall.coordinator.stretches import Stretch
from edgefl.protocol.host_reports import HostFacts, HostReport
from edgefl.protocol.messages import FreshRequest, Joined, Offer, Ready, Started, TaskFailed
from edgefl.protocol.transfers import Incoming
from edgefl.strategies.base.events import EdgeLost
from emulator.fidelity import Fidelity
from emulator.links.link import Completion, Transfer

Row = dict[str, Any]
Arrays = Mapping[str, np.ndarray]

# classes that a row names, by their names
SAID: dict[str, Callable[..., Any]] = {
    kind.__name__: kind
    for kind in (
        *(Joined, Started, Ready, FreshRequest, TaskFailed, EdgeLost),
        *(HostFacts, HostReport),
    )
}


_names: dict[type, tuple[str, ...]] = {}  # of the fields of a class


def _values(found: Any) -> Row:
    kind = type(found)
    if kind not in _names:
        _names[kind] = tuple(field.name for field in fields(kind))
    return {name: getattr(found, name) for name in _names[kind]}


def row(item: Any) -> tuple[Row, Arrays]:
    """Return an input as JSON for orjson, and its arrays by name."""
    head = {"kind": type(item).__name__}
    match item:
        case messages.Heard() | messages.HostSaid():
            said = [type(item.message).__name__, _values(item.message)]
            return {**head, **_values(item), "message": said}, {}
        case messages.Whole():
            incoming, offer = item.incoming, _values(item.incoming.offer)
            offer["meta"] = offer["meta"].hex()
            body = np.empty(0, np.uint8) if incoming.body is None else incoming.body
            what = {"now": item.now, "edge": item.edge, "most_bytes": incoming.most_bytes}
            return {**head, **what, "offer": offer}, {"body": body}
        case messages.Carried():
            completion = _values(item.completion)
            completion["transfer"] = _values(completion["transfer"])
            return {**head, **_values(item), "completion": completion}, {}
        case messages.Evaluated():
            return {**head, "version": item.version, "result": texts(item.result)}, {}
        case messages.Worked():
            return _worked(head, item)
        case messages.Judged():
            return {**head, **_values(item), "fidelity": item.fidelity.counts()}, {}
    return {**head, **_values(item)}, {}


def _worked(head: Row, item: messages.Worked) -> tuple[Row, Arrays]:
    """The row of a job's end. An error ends the run, so it never gets here."""
    values = {**head, **_values(item), "order": item.order.number}
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
            values["message"] = SAID[name](**said)
        case "Whole":
            return messages.Whole(values["now"], values["edge"], _incoming(values, arrays["body"]))
        case "Carried":
            values["completion"] = _completion(values["completion"])
            values["stretches"] = _stretches(values.get("stretches", ()))
        case "Measured":
            values["stretches"] = _stretches(values["stretches"])
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


def _stretches(rows: Sequence[Sequence[int]]) -> list[Stretch]:
    return [(begin, end, amount) for begin, end, amount in rows]


def _completion(values: Row) -> Completion:
    windows = tuple((begin, end) for begin, end in values["windows_ns"])
    transfer = Transfer(**values["transfer"])
    return Completion(**{**values, "transfer": transfer, "windows_ns": windows})
