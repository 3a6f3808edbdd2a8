"""A Flower app: its code, its arrays, and the messages between its server and its clients.

Both of Flower's interfaces: records (``arrays``, ``config``, ``metrics``), and ``NumPyClient``,
whose records have the prefixes of Flower's compatibility layer. In this order: the app's folder,
for which flwr is not needed; its code; its arrays as one flat vector; the first messages of its
server, the messages to its clients, and the state of a client between tasks.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.errors import UserError, as_user_error, nearest, needs, own_place
from edgefl.vectors import Layout, LayoutEntry, aligned
from edgefl_testbed import install_command
from emulator.plain_text import read_text

PREFIX = "flower:"  # how the name of a task begins that is a Flower app
PROJECT = "pyproject.toml"
COMPONENTS = "[tool.flwr.app.components]"
Setting = bool | int | float | str


@dataclass(frozen=True, slots=True)
class AppFolder:
    """A Flower app on this machine.

    ``client`` and ``server``: its components as "module:attribute"; ``server`` None: it has none.
    ``config``: [tool.flwr.app.config], flat: a key of a nested table is "table.key".
    """

    path: Path
    client: str
    server: str | None
    config: dict[str, Setting]

    def run_config(self, overrides: Mapping[str, Any]) -> dict[str, Setting]:
        """Return the app's config with ``overrides``; UserError for a key that it does not have."""
        given = flat(overrides, "flower.run_config")
        unknown = next((key for key in given if key not in self.config), None)
        if unknown is not None:
            raise UserError(
                f"flower.run_config: {self.path / PROJECT} has no key {unknown!r} in"
                f" [tool.flwr.app.config]{nearest(unknown, self.config)}"
            )
        return self.config | given

    def digest(self, run_config: Mapping[str, Setting]) -> str:
        """Return 16 hex digits that differ if the app's code or its config differs."""
        state = hashlib.sha256(repr(sorted(run_config.items())).encode())
        for path in sorted((*self.path.rglob("*.py"), self.path / PROJECT)):
            state.update(str(path.relative_to(self.path)).encode() + b"\0" + path.read_bytes())
        return state.hexdigest()[:16]


def app_folder(task: str, folders: Sequence[Path]) -> AppFolder:
    """Read the app that ``task`` names, relative to the first of ``folders`` that has it.

    UserError if there is none, or it names no ClientApp.
    """
    given = task.removeprefix(PREFIX)
    places = [(folder / Path(given).expanduser()).resolve() for folder in folders]
    place = next((path for path in places if path.is_dir()), None)
    if not given or place is None:
        tried = " or ".join(dict.fromkeys(map(str, places)))
        raise UserError(
            f'{task!r}: expected "{PREFIX}" and the folder of an app, no folder {tried}'
        )
    file = place / PROJECT
    try:
        with as_user_error():
            text = read_text(file)
        app = tomllib.loads(text)
        for key in ("tool", "flwr", "app"):
            app = _table(app, key, file)
    except FileNotFoundError as error:
        raise UserError(f"{task!r}: no file {file}, which every Flower app has") from error
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{file}: is not valid TOML: {error}") from error
    components = _table(app, "components", file)
    client = _component(components, "clientapp", file)
    if client is None:
        raise UserError(
            f'{file}: {COMPONENTS} names no clientapp: expected clientapp = "module:attribute"'
        )
    config = flat(_table(app, "config", file), f"{file}: [tool.flwr.app.config]")
    return AppFolder(place, client, _component(components, "serverapp", file), config)


def flat(config: Mapping[str, Any], place: str, prefix: str = "") -> dict[str, Setting]:
    """Return ``config`` without nested tables, as Flower passes it to an app."""
    found: dict[str, Setting] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, place, f"{name}.")
        elif isinstance(value, Setting):
            found[name] = value
        else:
            raise UserError(
                f"{place}: {name}: expected a truth value, a number or a text, found"
                f" {type(value).__name__}"
            )
    return found


def _table(given: dict[str, Any], key: str, file: Path) -> dict[str, Any]:
    found = given.get(key, {})
    if not isinstance(found, dict):
        raise UserError(f"{file}: {key}: expected a table")
    return found


def _component(components: Mapping[str, Any], key: str, file: Path) -> str | None:
    found = components.get(key)
    if found is None:
        return None
    if not isinstance(found, str) or not all(part for part in found.partition(":")):
        raise UserError(f'{file}: {COMPONENTS} {key}: expected "module:attribute", found {found!r}')
    return found


VERSION = "1.42"  # of flwr: other versions have other names inside
RUN_ID, SERVER_NODE, TASK_ID = 1, 1, 1  # of every message: an app sees one run


@dataclass(frozen=True, slots=True)
class ClientReply:
    """What a client returned: its records, and its state afterwards."""

    content: Any
    state: Any


class FlowerApp:
    """An app with its run config, for ``clients`` clients.

    Its code is imported once, when the first client is called. UserError for a wrong version of
    flwr.
    """

    def __init__(self, folder: AppFolder, run_config: Mapping[str, Setting], clients: int) -> None:
        check_version()
        self.folder, self.run_config, self.clients = folder, dict(run_config), clients

    @property
    def module(self) -> str:
        """The module of its ClientApp."""
        return self.folder.client.partition(":")[0]

    def context(self, node_id: int, node_config: Mapping[str, Setting], state: Any = None) -> Any:
        """Return a Context of this app."""
        from flwr.app import Context, RecordDict

        kept = RecordDict() if state is None else state
        return Context(RUN_ID, node_id, dict(node_config), kept, dict(self.run_config))

    def client(self, kind: str, partition: int, content: Any, state: Any = None) -> ClientReply:
        """Call the ClientApp as client ``partition`` with a message, and return its reply.

        ``kind``: the type of the message, such as "train". UserError if it returns no message. An
        exception of the app goes on to the caller.
        """
        from flwr.app import Message
        from flwr.clientapp import ClientApp

        app = self.component(self.folder.client, ClientApp)
        node = {"partition-id": partition, "num-partitions": self.clients}
        context = self.context(node_id_of(partition), node, state)
        identify()
        message = Message(content, dst_node_id=context.node_id, message_type=kind)
        reply = app(message, context)
        if not isinstance(reply, Message):
            raise UserError(
                f"returned {_named(reply)} for a {kind!r} message, expected a flwr.app.Message"
            )
        if reply.has_error():
            raise UserError(f"returned an error for a {kind!r} message: {reply.error.reason}")
        return ClientReply(reply.content, context.state)

    def component(self, name: str, kind: type[Any]) -> Any:
        """Import a component, "module:attribute"; UserError unless it is a ``kind``."""
        from flwr.supercore.object_ref import load_app

        what = f"{self.folder.path}: {name!r}"
        try:
            found = load_app(name, LookupError, self.folder.path)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(f"{what} cannot be imported: {said}") from error
        module = sys.modules[name.partition(":")[0]]
        file = getattr(module, "__file__", None)
        if file is not None and not Path(file).resolve().is_relative_to(self.folder.path):
            raise UserError(
                f"{what} is not this app's: a module of that name is at {file}; rename its package"
            )
        if not isinstance(found, kind):
            raise UserError(f"{what} is {_named(found)}, expected a flwr {kind.__name__}")
        return found


def node_id_of(partition: int) -> int:
    """The id of a client's node, which is not the server's."""
    return SERVER_NODE + 1 + partition


def identify() -> None:
    """Say who makes the messages in this process: Flower needs it for each of them."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id, TaskIdentity.run_id = TASK_ID, RUN_ID
    TaskIdentity.node_id = SERVER_NODE


def check_version() -> None:
    """UserError unless flwr is installed in a version whose apps this package can run."""
    with needs("flower", "a Flower app"):
        import_module("flwr.clientapp")
    try:
        found = version("flwr")
    except PackageNotFoundError:
        found = "unknown"
    if not f"{found}.".startswith(f"{VERSION}."):
        raise UserError(
            f"a Flower app needs flwr {VERSION}, found {found}: {install_command('flower')}"
        )


def _named(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


RUNNING = ("running_mean", "running_var")  # how the names of such statistics end in torch
EMPTY = "_empty"  # the key that Flower gives to a record without arrays


@dataclass(frozen=True, slots=True)
class AppArrays:
    """Names, shapes and types of an app's arrays, in the app's order, and their layout."""

    names: tuple[str, ...]
    types: tuple[np.dtype[Any], ...]
    layout: Layout

    @classmethod
    def of(cls, record: Any) -> AppArrays:
        """Describe an ArrayRecord. UserError if it has no arrays, or one that is no number."""
        arrays = _arrays(record)
        if not arrays:
            raise UserError("its first model has no arrays")
        strange = next((name for name, each in arrays.items() if each.dtype.kind not in "fiub"), "")
        if strange:
            raise UserError(
                f"its array {strange!r} holds {arrays[strange].dtype}, expected numbers"
            )
        entries, offset = [], 0
        for kind in ("parameter", "buffer"):
            for name, array in arrays.items():
                trainable = array.dtype.kind == "f" and not name.endswith(RUNNING)
                if trainable == (kind == "parameter"):
                    module = name.rpartition(".")[0]
                    entries.append(LayoutEntry(name, array.shape, offset, kind, module))
                    offset += array.size
        types = tuple(array.dtype for array in arrays.values())
        return cls(tuple(arrays), types, Layout(tuple(entries)))

    def record(self, vector: np.ndarray) -> Any:
        """Return the ArrayRecord of a flat vector, each array in its own type."""
        from flwr.app import Array, ArrayRecord

        found = {}
        for name, kind in zip(self.names, self.types):
            array = self.layout.view(vector, name)
            whole = kind.kind in "iub"
            found[name] = Array(np.asarray(np.rint(array) if whole else array, kind, order="C"))
        return ArrayRecord(found)

    def vector(self, record: Any) -> np.ndarray:
        """Return the flat vector of an ArrayRecord. UserError if its arrays have other shapes."""
        arrays, vector = _arrays(record), aligned(self.layout.size)
        if set(arrays) != set(self.names):
            differs = sorted(set(arrays) ^ set(self.names))[0]
            more = "more arrays" if differs in arrays else "fewer arrays"
            raise UserError(f"returned {more} than the model has: {differs!r}")
        for entry in self.layout.entries:
            array = arrays[entry.name]
            if array.shape != entry.shape:
                raise UserError(
                    f"returned the array {entry.name!r} of shape {array.shape}, expected"
                    f" {entry.shape}"
                )
            self.layout.view(vector, entry.name)[...] = array
        return vector


def _arrays(record: Any) -> dict[str, np.ndarray]:
    return {name: array.numpy() for name, array in record.items() if name != EMPTY}


# Nodes that the ServerApp sees: as many as any strategy waits for.
MOST_NODES = 1000
# How often a server may ask for nodes after its first messages to train: it may send none to
# evaluate.
MOST_ASKED = 8
GET_PARAMETERS = "get_parameters"  # a message of Flower's former API: a client makes the model


class FirstRound:
    """A Flower ``Grid`` that keeps the first messages for training and evaluation.

    ``train`` and ``evaluate``: the content of such a message. It ends the ServerApp with the
    exception with which Flower ends one whose run was stopped.
    """

    def __init__(self, app: FlowerApp) -> None:
        from flwr.supercore.run import Run

        self.app = app
        self.train: Any = None
        self.evaluate: Any = None
        self.asked = 0  # for nodes, since it has sent messages to train
        self.over = False
        self.run = Run.create_empty(RUN_ID)

    def set_run(self, run: Any) -> None:
        """Flower's runner calls it."""
        self.run = run

    def create_message(
        self, content: Any, message_type: str, dst_node_id: int, group_id: str, ttl: Any = None
    ) -> Any:
        """Make a message, as Flower's grids do."""
        from flwr.app import Message

        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        """The ids of many nodes, until the first round is over."""
        self.asked += self.train is not None
        self.over = self.over or self.evaluate is not None or self.asked > MOST_ASKED
        self._end()
        return [node_id_of(number) for number in range(max(MOST_NODES, self.app.clients))]

    def get_nodes(self) -> Iterable[Any]:
        """The same nodes, described."""
        from flwr.proto.node_pb2 import NodeInfo

        return [NodeInfo(node_id=node_id) for node_id in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
        """Keep what the ServerApp sends."""
        self._keep(messages)
        return []

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        """End the ServerApp: nothing answers."""
        self.over = True
        self._end()
        return []

    def send_and_receive(self, messages: Iterable[Any], *, timeout: Any = None) -> Iterable[Any]:
        """Keep what the ServerApp sends. Only the former API's question for a model is answered."""
        return self._keep(messages)

    def _keep(self, messages: Iterable[Any]) -> list[Any]:
        from flwr.app import Message

        answers = []
        for message in messages:
            kind = message.metadata.message_type
            if kind == GET_PARAMETERS:
                partition = (message.metadata.dst_node_id - node_id_of(0)) % self.app.clients
                reply = self.app.client(kind, partition, message.content)
                answers.append(Message(reply.content, reply_to=message))
            elif kind.startswith("train"):
                self.train = self.train or message.content
            elif kind.startswith("evaluate"):
                self.evaluate = self.evaluate or message.content
        self._end()
        return answers

    def _end(self) -> None:
        from flwr.supercore.run import RunNotRunningException

        if self.over:
            raise RunNotRunningException


def first_round(app: FlowerApp) -> FirstRound:
    """Return the first messages of the app's ServerApp. UserError if it sends none to train."""
    from flwr.serverapp import ServerApp
    from flwr.supercore.run import RunNotRunningException

    if app.folder.server is None:
        raise UserError(
            f"{app.folder.path}: the app has no serverapp, which makes its first model: expected"
            ' serverapp = "module:attribute" in [tool.flwr.app.components]'
        )
    server = app.component(app.folder.server, ServerApp)
    grid, why = FirstRound(app), "it ended"
    identify()
    with _quiet():
        try:
            server(grid, app.context(SERVER_NODE, {}))
        # after the first round it gets no answers
        except (Exception, RunNotRunningException) as error:
            module = app.folder.server.partition(":")[0]
            why = f"{type(error).__name__}: {error}{own_place(error, module)}"
    if grid.train is None:
        raise UserError(f"{app.folder.path}: its ServerApp sent no message to train: {why}")
    return grid


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what Flower's server says about its rounds: they are not this run's."""
    log = logging.getLogger("flwr")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


ROUND = "server-round"  # the key of a config with the number of the round, as Flower's FedAvg has
EXAMPLES = ("num-examples", "num_examples")


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """What a client returns for a model to train. ``state``: what it keeps."""

    weights: np.ndarray
    examples: int
    metrics: dict[str, float]
    state: Any


class AppTasks:
    """Makes an app's messages after those of its own server's first round."""

    def __init__(self, app: FlowerApp, first: FirstRound) -> None:
        """UserError if its server sends no model or several ones."""
        self.app, self.first = app, first
        self.arrays = AppArrays.of(_only(first.train, app))
        self.told = False  # in this process: that evaluations get no state

    def initial(self) -> np.ndarray:
        """The first model."""
        return self.arrays.vector(_only(self.first.train, self.app))

    def train(self, partition: int, weights: np.ndarray, number: int, state: Any) -> TrainedModel:
        """Let a client train a model in round ``number`` (from 1)."""
        content = self._content(self.first.train, weights, number)
        reply = self.app.client("train", partition, content, state)
        metrics = _metrics(reply.content)
        records = list(reply.content.array_records.values())
        if len(records) != 1:
            raise UserError(f"returned {len(records)} records of arrays, expected 1")
        vector = self.arrays.vector(records[0])
        return TrainedModel(vector, _examples(metrics), metrics, reply.state)

    def evaluate(
        self, partition: int, weights: np.ndarray, number: int
    ) -> tuple[int, dict[str, float]]:
        """Let a client evaluate a model; return its number of examples and its metrics.

        Its state is on its edge, maybe on another machine, so it gets an empty one.
        """
        first = self.first.evaluate
        if first is None:  # the server's first round has no evaluation
            first = _as_evaluation(self.first.train)
        content = self._content(first, weights, number)
        metrics = _metrics(self.app.client("evaluate", partition, content).content)
        return _examples(metrics), metrics

    def _content(self, first: Any, weights: np.ndarray, number: int) -> Any:
        """The records of a first message, with another model and another round."""
        from flwr.app import ConfigRecord, RecordDict

        content = RecordDict()
        for name, record in first.array_records.items():
            content[name] = self.arrays.record(weights) if len(record) else record
        for name, record in first.config_records.items():
            config = dict(record)
            if ROUND in config or not name.startswith(("fitins", "evaluateins")):
                config[ROUND] = number
            content[name] = ConfigRecord(config)
        for name, record in first.metric_records.items():
            content[name] = record
        return content


def score(metrics: list[dict[str, float]], key: str | None, part: str) -> str:
    """Return the name of a score among ``metrics``: ``key``, or the only one with ``part``.

    UserError if there is none, or several.
    """
    names = sorted(set.intersection(*(set(each) for each in metrics)) - set(EXAMPLES))
    option = "flower.loss" if part == "loss" else "flower.accuracy"
    if key is not None:
        if key not in names:
            raise UserError(f"{option}: the app returns no {key!r}{nearest(key, names)}")
        return key
    fitting = [name for name in names if part in name.lower()]
    if len(fitting) != 1:
        found = ", ".join(map(repr, fitting or names)) or "no metrics"
        raise UserError(
            f"{option}: expected the name of one of the metrics that the app's evaluation returns:"
            f" {found}"
        )
    return fitting[0]


def _only(content: Any, app: FlowerApp) -> Any:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise UserError(
            f"{app.folder.path}: its ServerApp sends {len(records)} records of arrays, expected 1:"
            " the model"
        )
    return records[0]


def _as_evaluation(content: Any) -> Any:
    """The records of a message to train as one to evaluate, without the config of training."""
    from flwr.app import ConfigRecord, RecordDict

    made = RecordDict()
    for name, record in content.array_records.items():
        made[name.replace("fitins", "evaluateins")] = record
    for name in content.config_records:
        made[name.replace("fitins", "evaluateins")] = ConfigRecord()
    return made


def _metrics(content: Any) -> dict[str, float]:
    """All numbers of a reply by name. NumPyClient's are in a record of any values."""
    found: dict[str, float] = {}
    for name, record in (*content.metric_records.items(), *content.config_records.items()):
        if not name.endswith(".status"):
            found |= {k: float(v) for k, v in record.items() if isinstance(v, int | float)}
    return found


def _examples(metrics: dict[str, float]) -> int:
    found = next((metrics[name] for name in EXAMPLES if name in metrics), None)
    if found is None:
        raise UserError(f"returned no metric {EXAMPLES[0]!r}{nearest(EXAMPLES[0], metrics)}")
    if not found >= 1:
        raise UserError(f"returned {EXAMPLES[0]} = {found:g}, expected at least 1")
    return int(found)


def packed(state: Any) -> np.ndarray:
    """Return a RecordDict as a vector: the number of bytes is odd or even, then the bytes."""
    from flwr.common.serde import recorddict_to_proto

    data = recorddict_to_proto(state).SerializeToString(deterministic=True)
    odd = len(data) % 2
    words = np.frombuffer(data + b"\0" * odd, dtype="<u2")
    return np.concatenate([[odd], words]).astype(np.float32)


def unpacked(vector: np.ndarray) -> Any:
    """Return the RecordDict of a vector."""
    from flwr.common.serde import recorddict_from_proto
    from flwr.proto.recorddict_pb2 import RecordDict

    data = vector[1:].astype("<u2").tobytes()
    return recorddict_from_proto(RecordDict.FromString(data[: len(data) - int(vector[0])]))
